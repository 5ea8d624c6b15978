"""Completion of `/command` at the start of a prompt, and of `@path` anywhere in it, for prompt_toolkit."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from parley.sdk.errors import ClaudeSDKError
from parley.terminal.base import View
from parley.terminal.commands import COMMANDS
from parley.terminal.rendering.text import reveal_line, shorten

COMMAND = re.compile(r"/([\w:-]*)")
MENTION = re.compile(r"""(?:^|(?<=[\s(]))@("?)([^\s"`]*)$""")
MAX_META_CELLS = 60
OWN = (("exit", "Quit"),)
"""Commands of the application itself."""


class PromptCompleter(Completer):
    def __init__(self, view: View) -> None:
        self._view = view

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Commands only: files are known to the engine, which is asked without blocking."""
        typed = COMMAND.fullmatch(document.text_before_cursor)
        if typed is None:
            return
        name = typed[1].lower()
        for command, summary in sorted(self._list_commands().items()):
            if command.lower().startswith(name):
                yield Completion(
                    f"/{command}",
                    start_position=-len(typed[0]),
                    display=f"/{reveal_line(command)}",
                    display_meta=shorten(reveal_line(summary), MAX_META_CELLS),
                )

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for completion in self.get_completions(document, complete_event):
            yield completion
        typed = MENTION.search(document.text_before_cursor)
        if typed is None:
            return
        for path in await self._find_files(typed[2]):
            yield Completion(
                quote_mention(path), start_position=-len(typed[1] + typed[2]) - 1, display=reveal_line(path)
            )

    def _list_commands(self) -> dict[str, str]:
        """What each does, by name; those of the terminal hide those of the engine."""
        try:
            found = (self._view.client.server_info or {}).get("commands") or ()
        except ValueError:  # the engine is not ready
            found = ()
        theirs = {str(row.get("name")): str(row.get("description", "")) for row in found if isinstance(row, dict)}
        return {**theirs, **dict(OWN), **{command.name: command.summary for command in COMMANDS}}

    async def _find_files(self, query: str) -> list[str]:
        try:
            return [path for path in await self._view.client.file_suggestions(query) if path.isprintable()]
        except (ClaudeSDKError, ValueError):  # the engine is not ready, or ends: there is nothing to suggest
            return []


def quote_mention(path: str) -> str:
    """How a prompt names a file, as the engine reads it."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"
