"""`parley inspect`, `schema`, `replay` and `fake`: what a client and an engine said to each other, and may say.

`inspect` shows a recording as text, as JSON, or as an HTML report. `schema` shows the messages of the protocol as text,
JSON Schema or TypeScript, and checks a recording against them. A file of plain JSON lines, such as the output of
`claude --output-format stream-json`, is read as output of an engine. `replay` plays one side of a recording and
compares the other side with it; `fake` plays the engine of a scenario file.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from parley.cli.commands.subcommand import GivenArgs, write_lines, write_result
from parley.cli.nearest import find_nearest
from parley.cli.stdio import warn, write
from parley.errors import InvalidArguments, UsageError
from parley.fake.replay import ReplayDifference, replay_client, replay_engine
from parley.fake.scenario import Scenario, load_scenario
from parley.fake.serve import end_by_signal, read_command_line, serve_scenario
from parley.inspector.conversation import TextView, WireConversation, WireRow, count
from parley.inspector.observer import describe_ending
from parley.inspector.recorder import CleanLines
from parley.inspector.report import ReportFile
from parley.protocol.base import Json, Struct
from parley.protocol.messages.requests import list_requests
from parley.protocol.schema import build_part, build_schema, declare, list_messages, name_message, to_typescript
from parley.stores.wire_recording import DIRECTIONS, KeptLine, WireHeader, WireLine, WireRecording, read_wire_recording
from parley.stores.wire_redaction import WireRedactor
from parley.testing.launcher_script import write_launcher
from parley.transports.stdio import StdioTransport
from parley.version import PROTOCOL_LEVEL

NAME_COLUMN = 36


def choose_path(given: str, suffix: str) -> Path:
    """A file, or a new one in the folder that is given."""
    path = Path(given)
    if given.endswith(os.sep) or path.is_dir():
        return path / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}{suffix}"
    return path


class ReadConversation(Struct, frozen=True, kw_only=True):
    """A recording, and where it is cut."""

    recording: WireRecording
    problem: str = ""
    """What is missing at its end, with the line."""


def read_conversation(given: str) -> ReadConversation:
    """A recording, also if its end is missing, or a file of plain JSON lines. Raises UsageError."""
    try:
        data = Path(given).read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read {given}: {exc.strerror}") from None
    if is_plain(data):
        return ReadConversation(recording=read_plain(given, data))
    found = read_wire_recording(given, allow_cut=True)
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    problem = "" if found.exit_code is not None else f"{given}:{count}: the recording is cut here; its end is missing"
    return ReadConversation(recording=found, problem=problem)


def is_plain(data: bytes) -> bool:
    """Whether the first line is a message, and not the header of a recording."""
    try:
        first = msgspec.json.decode(data.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(first, dict) and ("type" in first or "jsonrpc" in first)


def read_plain(name: str, data: bytes) -> WireRecording:
    lines = [
        WireLine(0.0, "engine", line, number=number) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()
    ]
    return WireRecording(name, WireHeader(command=()), lines, exit_code=None)


def add_lines(recording: WireRecording, conversation: WireConversation) -> Iterator[WireRow]:
    """Add the lines of a recording to a conversation, and yield what is known of each."""
    for line in recording.lines:
        if not line.eof:
            yield conversation.add(line.number, line.at_ms / 1000, DIRECTIONS[line.sender], line.data)


def inspect(given: GivenArgs) -> int:
    found = read_conversation(given.words[0])
    if found.problem:
        warn(found.problem)
    redactor = WireRedactor(os.environ)
    conversation = WireConversation()
    lines = list(add_lines(found.recording, conversation))
    if given.has("html"):
        path = Path(given.one("html"))
        recording = found.recording
        report = ReportFile(path, list(recording.header.command), recording.header.started_at)
        clean = CleanLines(redactor, report.add)
        for row in lines:
            clean.add(KeptLine(record=row.record, data=b""))
        clean.flush()
        if recording.exit_code is not None:
            report.end(0.0, recording.exit_code)
        report.close()
    view, code = TextView(redactor.redact_text), found.recording.exit_code
    shown = [] if given.has("summary") or given.has("json") else [view.format_line(row) for row in lines]
    text = [*shown, *view.format_summary(conversation, describe_ending(code))]
    return write_result(given, {**conversation.summarize(), "exit_code": code}, text)


def show_schema(given: GivenArgs) -> int:
    if given.has("json") and given.has("typescript"):
        raise InvalidArguments("--json and --typescript cannot be combined; use one")
    if given.has("check"):
        return check(given)
    document = build_schema()
    names = list_names()
    if given.has("profile"):
        profile = given.one("profile")
        profiles = document["x-profiles"]
        if profile not in profiles:
            raise InvalidArguments(f"unknown profile {profile!r} (choose from {', '.join(profiles)})")
        names = {name: names[name] for name in profiles[profile]["messages"]}
    if not given.words:
        chosen = {**document, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names.values()]}
        if given.has("json") or given.has("typescript"):
            return write_result(given, chosen, [to_typescript(chosen).rstrip()])
        lines = [f"Version {document['version']}", "", "Messages:", *list_definitions(document, names)]
        if given.has("profile"):
            return write_lines(lines)
        requests = {subtype: cls.__name__ for subtype, cls in sorted(list_requests().items())}
        lines += ["", "Control requests:", *list_definitions(document, requests), "", "Capabilities:"]
        lines += [f"  {name:{NAME_COLUMN}} {text}" for name, text in document["x-capabilities"].items()]
        lines += ["", "Output profiles (--profile):"]
        lines += [
            f"  {name:{NAME_COLUMN}} {row['help']} {row['options']}" for name, row in document["x-profiles"].items()
        ]
        return write_lines(lines)
    wanted = find_definition(document, given.words[0])
    part = build_part(document, wanted)
    if given.has("json") or given.has("typescript"):
        return write_result(given, part, [to_typescript(part).rstrip()])
    return write_lines([declare(wanted, document["$defs"][wanted]).rstrip(), *describe_answer(document, wanted)])


def list_names() -> dict[str, str]:
    """The definition of every message by its name."""
    return {name_message(*key): cls.__name__ for key, cls in list_messages().items()}


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
    found = read_conversation(given.one("check"))
    if found.problem:
        warn(found.problem)
    conversation = WireConversation()
    for _ in add_lines(found.recording, conversation):
        pass
    unknown = list(conversation.unknown.values())
    code = 1 if unknown or conversation.not_json else 0
    summary = conversation.summarize()
    result = {key: summary[key] for key in ("lines", "unknown", "not_json")}
    view = TextView(WireRedactor(os.environ).redact_text)
    lines = [view.format_unknown(each) for each in unknown]
    lines += [f"not JSON: line {number}" for number in conversation.not_json]
    lines.append(f"{count(conversation.lines, 'line')}, {count(len(lines), 'finding')}")
    return write_result(given, result, lines, code)


MAX_SECONDS = 86_400.0


def run_replay(given: GivenArgs) -> int:
    path, *words = given.words
    pace = given.decimal("pace", 0, MAX_SECONDS)
    if given.has("client"):
        return replay_clients(given, Path(path), words, pace)
    recording = read_wire_recording(path, allow_cut=given.has("allow-cut"))
    if given.has("install"):
        cut = ["--allow-cut"] if given.has("allow-cut") else []
        write_launcher(
            Path(given.one("install")), ["replay", str(Path(path).absolute()), *cut, "--pace", f"{pace:g}", "--"]
        )
        return write_lines([f"{given.one('install')} replays the engine of {path}"])
    if "--version" in words or "-v" in words:
        return write_lines([f"{PROTOCOL_LEVEL} (Claude Code)"])

    async def play() -> int:
        return await replay_engine(recording, StdioTransport(), warn, pace=pace)

    code = asyncio.run(play())
    if code < 0:
        end_by_signal(-code)
    return code


def replay_clients(given: GivenArgs, path: Path, command: Sequence[str], pace: float) -> int:
    """Play the client of one recording, or of all in a directory, to an engine."""
    found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not found:
        raise UsageError(f"{path} has no recordings (files named *.jsonl)")
    recordings: list[WireRecording] = []
    broken: list[str] = []
    for each in found:
        try:
            recordings.append(read_wire_recording(each, allow_cut=given.has("allow-cut")))
        except UsageError as exc:
            broken.append(str(exc))  # the others are replayed all the same
    started = time.monotonic()
    jobs = given.number("jobs", os.cpu_count() or 1)
    wait_seconds = given.decimal("wait-seconds", 10, MAX_SECONDS)
    differences = asyncio.run(compare_all(recordings, command, jobs=jobs, pace=pace, wait_seconds=wait_seconds))
    differences = [*broken, *differences]
    for difference in differences:
        write(f"{difference}\n".encode(errors="replace"))
    seconds = time.monotonic() - started
    equal = len(found) - len(differences)
    write_lines([f"{equal} of {len(found)} recordings equal, {seconds:.1f} s"])
    return 1 if differences else 0


async def compare_all(
    recordings: Sequence[WireRecording], command: Sequence[str], *, jobs: int, pace: float, wait_seconds: float
) -> list[str]:
    """The first difference of each recording that differs. Raises UsageError."""
    free = asyncio.Semaphore(jobs)

    async def compare(recording: WireRecording) -> str | None:
        async with free:
            try:
                await replay_client(
                    recording, command or recording.header.command, pace=pace, wait_seconds=wait_seconds
                )
            except ReplayDifference as exc:
                return str(exc)
        return None

    return [found for found in await asyncio.gather(*map(compare, recordings)) if found is not None]


def run_fake(given: GivenArgs) -> int:
    scenario = load_scenario(given.words[0])
    if given.has("check"):
        return write_lines([describe(scenario)])
    if given.has("install"):
        write_launcher(Path(given.one("install")), ["fake", str(Path(given.words[0]).absolute()), "--"])
        return write_lines([f"{given.one('install')} plays {given.words[0]}"])

    return serve_scenario(scenario, read_command_line(given.words[1:], os.getcwd()), warn)


def describe(scenario: Scenario) -> str:
    steps = sum(len(turn.steps) for turn in scenario.turn)
    return f"{scenario.name}: turns: {len(scenario.turn)}, steps: {steps}, version: {scenario.version}"
