"""`parley context`: what each request of a session read from the prompt cache, wrote to it and missed, and why."""

from __future__ import annotations

from parley.cli.commands.subcommand import GivenArgs, open_launch, show_lines, write_result
from parley.compose.stores import SessionStores
from parley.protocol.base import to_builtins
from parley.stores.request_usage import list_requests
from parley.terminal.rendering.tables import format_table


def show_context(given: GivenArgs) -> int:
    sessions = SessionStores(open_launch(given.options))
    session_id = sessions.find(given.words[0])
    requests = [*list_requests(sessions.store(session_id).read(session_id))]
    rows = [
        (str(number), each.at[11:19], each.model, *map(str, each.tokens), each.reason)
        for number, each in enumerate(requests, 1)
    ]
    names = ("READ", "WRITTEN", "FRESH", "MISSED")
    table = format_table(("REQUEST", "TIME", "MODEL", *names, "WHY"), rows, right=("REQUEST", *names))
    return write_result(given, {"requests": to_builtins(requests)}, [*show_lines(table)])
