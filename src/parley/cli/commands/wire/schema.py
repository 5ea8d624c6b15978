"""`parley schema`: the messages of the protocol as text, JSON Schema or TypeScript; checks a file against them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json, write_lines
from parley.cli.commands.wire.recordings import add_lines, read_conversation
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn
from parley.errors import InvalidArguments
from parley.protocol.base import Json
from parley.protocol.messages.requests import list_requests
from parley.protocol.schema import build_part, build_schema, list_messages, name_message
from parley.protocol.typescript import declare, to_typescript

NAME_COLUMN = 36


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["schema"], argv, {"": show_schema})


def show_schema(given: GivenArgs) -> int:
    if given.has("json") and given.has("typescript"):
        raise InvalidArguments("--json and --typescript cannot be combined; use one")
    if given.has("check"):
        return check(given)
    document = build_schema()
    names = list_names()
    if given.has("profile"):
        names = choose_profile(document, names, given.one("profile"))
    if not given.words:
        return show_all(document, names, given)
    wanted = find_definition(document, given.words[0])
    part = build_part(document, wanted)
    if given.has("json"):
        return write_json(part)
    if given.has("typescript"):
        return write_lines([to_typescript(part).rstrip()])
    return write_lines([declare(wanted, document["$defs"][wanted]).rstrip(), *describe_answer(document, wanted)])


def list_names() -> dict[str, str]:
    """The definition of every message by its name."""
    return {name_message(*key): cls.__name__ for key, cls in list_messages().items()}


def choose_profile(document: Json, names: dict[str, str], profile: str) -> dict[str, str]:
    """Raises InvalidArguments."""
    profiles = document["x-profiles"]
    if profile not in profiles:
        raise InvalidArguments(f"unknown profile {profile!r} (choose from {', '.join(profiles)})")
    return {name: names[name] for name in profiles[profile]["messages"]}


def show_all(document: Json, names: dict[str, str], given: GivenArgs) -> int:
    chosen = {**document, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names.values()]}
    if given.has("json"):
        return write_json(chosen)
    if given.has("typescript"):
        return write_lines([to_typescript(chosen).rstrip()])
    lines = [f"Version {document['version']}", "", "Messages:", *list_definitions(document, names)]
    if given.has("profile"):
        return write_lines(lines)
    requests = {subtype: cls.__name__ for subtype, cls in sorted(list_requests().items())}
    lines += ["", "Control requests:", *list_definitions(document, requests), "", "Capabilities:"]
    lines += [f"  {name:{NAME_COLUMN}} {text}" for name, text in document["x-capabilities"].items()]
    lines += ["", "Output profiles (--profile):"]
    lines += [f"  {name:{NAME_COLUMN}} {row['help']} {row['options']}" for name, row in document["x-profiles"].items()]
    return write_lines(lines)


def list_definitions(document: Json, names: dict[str, str]) -> Iterator[str]:
    for name, definition in names.items():
        text = document["$defs"][definition].get("description", "").partition("\n")[0]
        yield f"  {name:{NAME_COLUMN}} {text}".rstrip()


def describe_answer(document: Json, name: str) -> Iterator[str]:
    """The type of the answer to a control request."""
    if answer := document["$defs"][name].get("x-answer"):
        found = answer["$ref"].rpartition("/")[2]
        yield from ("", "// The answer:", declare(found, document["$defs"][found]).rstrip())


def find_definition(document: Json, given: str) -> str:
    """The definition of a message, a control request or a part. Raises InvalidArguments."""
    requests = {subtype: cls.__name__ for subtype, cls in list_requests().items()}
    notices = {subkind: cls.__name__ for (_, subkind), cls in list_messages().items() if subkind}
    known: dict[str, str] = {**{name: name for name in document["$defs"]}, **notices, **requests, **list_names()}
    if given not in known:
        raise InvalidArguments(f"unknown message {given!r}{find_nearest(given, known)}; `parley schema` lists them")
    return known[given]


def check(given: GivenArgs) -> int:
    """Print what a recording has that the schema does not; the exit code is 1 if there is something."""
    from parley.inspector.conversation import Conversation, TextView, count
    from parley.inspector.redaction import WireRedactor

    found = read_conversation(given.one("check"))
    if found.problem:
        warn(found.problem)
    conversation = Conversation()
    for _ in add_lines(found.recording, conversation):
        pass
    unknown = list(conversation.unknown.values())
    code = 1 if unknown or conversation.not_json else 0
    if given.has("json"):
        summary = conversation.summarize()
        return write_json({key: summary[key] for key in ("lines", "unknown", "not_json")}, code)
    view = TextView(WireRedactor(os.environ).redact_text)
    lines = [view.format_unknown(each) for each in unknown]
    lines += [f"not JSON: line {number}" for number in conversation.not_json]
    return write_lines([*lines, f"{count(conversation.lines, 'line')}, {count(len(lines), 'finding')}"], code)
