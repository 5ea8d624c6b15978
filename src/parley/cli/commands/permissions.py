"""`parley permissions`: explain why a tool call is allowed, is denied or needs approval.

parley permissions check TOOL INPUT [options]      the decision of a session with these options, and why
parley permissions replay SESSION [options]        what other rules would have decided in a past session
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from parley.cli.commands.subcommand import GivenArgs, open_launch, write_lines
from parley.cli.nearest import find_nearest
from parley.cli.stdio import read_stdin, warn
from parley.compose.launch_context import working_directory
from parley.compose.permissions import may_bypass
from parley.compose.setup.permission_check import PermissionChecker, UnknownTool
from parley.compose.stores import SessionStores
from parley.compose.tools import list_tools
from parley.engine.control.settings import CheckResult
from parley.errors import InvalidArguments, SessionError, UsageError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.stores.base import Entry
from parley.terminal.rendering.requests import format_decision, format_rows, parse_input, update_flags

EXIT_CODES = {"allow": 0, "ask": 1, "deny": 2}
ORDER = tuple(EXIT_CODES)
RULE_SETS = ("settings", "allowed_tools", "disallowed_tools", "setting_sources", "managed_settings", "permission_mode")
MARKS = {"same": "=", "stricter": "+", "laxer": "-", "unknown": "?"}
MAX_INPUT_CHARS = 60


def read_options(given: GivenArgs) -> CliOptions:
    return given.options.replace(permission_mode=given.one("mode")) if given.has("mode") else given.options


def replay_session(given: GivenArgs) -> int:
    return write_lines([replay(given.words[0], read_options(given), given.has("json"))])


def check_call(given: GivenArgs) -> int:
    """Raises InvalidArguments for all errors: their exit code must not be that of a decision."""
    try:
        name, *input = given.words
        checker = PermissionChecker(read_options(given), working_directory(), warn)
        may_bypass(checker.basis, checker.mode)
        result = checker.check(name, read_input(checker, name, input))
        is_offered = result.tool in checker.offered_tools or checker.tool(name) is None
        code = EXIT_CODES[result.decision]
        if given.has("json"):
            more = {"mode_source": checker.mode_source(), "offered": is_offered}
            return write_lines([msgspec.json.encode({**result.to_json(), **more}).decode()], code)
        return write_lines(format_result(result, checker.mode_source(), is_offered), code)
    except UnknownTool as exc:
        raise InvalidArguments(str(UnknownTool(exc.name, find_nearest(exc.name, list_tools())))) from None
    except (UsageError, SessionError) as exc:
        raise InvalidArguments(str(exc)) from None


def read_input(checker: PermissionChecker, name: str, given: Sequence[str]) -> Json:
    """Raises UsageError."""
    tool, text = checker.tool(name), given[0] if given else ""
    if text == "-":
        text = (read_stdin(is_awaited=True) or b"").decode(errors="replace").strip()
    try:
        found = parse_input(name, text)
    except ValueError as exc:
        raise UsageError(str(exc)) from None
    return checker.complete_input(tool, found) if text.lstrip().startswith("{") or not text else found


def format_result(result: CheckResult, mode_source: str, is_offered: bool) -> Iterator[str]:
    yield from format_decision(result.to_json(), mode_source=mode_source, is_offered=is_offered)
    for suggestion in result.suggestions:
        yield from format_rows(("allow with", " ".join(update_flags(suggestion))))


# Replay. It uses only the rules given on the command line (`--settings`, `--allowedTools`, ...) and the settings that
# `--setting-sources` names. Permissions that the client granted during the session are not replayed.


class ReplayedCall(Struct, frozen=True, kw_only=True):
    """A tool call of the session, with its decisions then and now."""

    id: str
    tool: str
    input: Json
    then: Json | None
    """None if another engine ran the call, or it ended before a decision."""
    now: CheckResult | None = None
    """None for an unknown tool."""

    @property
    def change(self) -> str:
        """`same`, `stricter`, `laxer`, or `unknown` if one of the decisions is missing."""
        if self.then is None or self.now is None or read_verdict(self.then) not in ORDER:
            return "unknown"
        step = ORDER.index(self.now.decision) - ORDER.index(read_verdict(self.then))
        return "same" if step == 0 else "stricter" if step > 0 else "laxer"

    def to_json(self) -> Json:
        now = None if self.now is None else {key: value for key, value in self.now.to_json().items() if key != "input"}
        then = None if self.then is None else {"verdict": read_verdict(self.then), **self.then}
        names = {"tool_use_id": self.id, "tool": self.tool, "input": self.input}
        return {**names, "then": then, "now": now, "change": self.change}


def replay(name: str, options: CliOptions, as_json: bool) -> str:
    """Raises UsageError or UnknownSession."""
    if not any(field in options.given for field in RULE_SETS):
        raise UsageError(
            "replay requires rules to compare with; give --settings FILE, --allowedTools or --disallowedTools"
        )
    here, sessions = working_directory(), SessionStores(open_launch(options))
    session_id = sessions.find(name)
    entries = list(sessions.store(session_id).read(session_id))
    calls = list(collect_calls(entries))
    alone = {} if options.setting_sources is not None else {"setting_sources": ()}
    # A path in --settings is relative to this directory, the rules to the session's directory.
    checker = PermissionChecker(
        find_session(options, here).replace(**alone), find_start(entries) or here, warn, session_id
    )
    is_given = options.skip_permissions or options.permission_mode is not None
    done = [replay_call(checker, call, checker.mode if is_given else None) for call in calls]
    summary = dict.fromkeys(MARKS, 0) | Counter(each.change for each in done)
    if as_json:
        report = {"session_id": session_id, "calls": [each.to_json() for each in done], "summary": summary}
        return msgspec.json.encode(report).decode()
    return "\n".join([*map(format_call, done), format_report(len(done), summary)])


def find_session(options: CliOptions, here: str) -> CliOptions:
    given = options.settings
    is_path = given is not None and not given.lstrip().startswith("{")
    return options.replace(settings=os.path.join(here, given)) if given and is_path else options


def collect_calls(entries: Iterable[Entry]) -> Iterator[ReplayedCall]:
    """Yield the tool calls in order, each with its last decision."""
    entries = list(entries)
    decisions = {str(e.message.get("tool_use_id")): e.message for e in entries if e.kind == "permission"}
    for entry in entries:
        content = (entry.message.get("message") or {}).get("content") if entry.kind == "assistant" else None
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                id = str(block.get("id"))
                yield ReplayedCall(id=id, tool=str(block.get("name")), input=block["input"], then=decisions.get(id))


def find_start(entries: Iterable[Entry]) -> str | None:
    """Return the working directory of the session's first decision."""
    paths = (entry.message.get("cwd") for entry in entries if entry.kind == "permission")
    return next((path for path in paths if isinstance(path, str)), None)


def replay_call(checker: PermissionChecker, call: ReplayedCall, mode: str | None) -> ReplayedCall:
    then = call.then or {}
    try:
        # The given mode, else the mode of the recorded decision, else the mode of the settings.
        now = checker.check(call.tool, call.input, (mode and checker.mode) or then.get("mode"), then.get("cwd"))
    except UsageError:
        return call
    return msgspec.structs.replace(call, now=now)


def read_verdict(record: Json) -> str:
    """Return what the rules decided, whatever the user or client answered."""
    return "ask" if record.get("asked") else str(record.get("decision"))


def format_call(call: ReplayedCall) -> str:
    then, now = call.then, call.now
    before = "not recorded" if then is None else read_verdict(then)
    if then is not None and then.get("asked"):
        before += f" ({then.get('source')}: {then.get('decision')})"
    after = "unknown tool" if now is None else now.decision
    why = "" if now is None else (now.rule or {}).get("text") or now.reason
    text = msgspec.json.encode(call.input).decode()
    text = text if len(text) <= MAX_INPUT_CHARS else f"{text[: MAX_INPUT_CHARS - 1]}…"
    row = f"{MARKS[call.change]} {call.tool:12} {before:20} -> {after:6} {text}"
    return printable(f"{row}  [{why}]" if why else row)


def format_report(calls: int, summary: Json) -> str:
    counts = ", ".join(f"{count} {change}" for change, count in summary.items() if count or change != "unknown")
    return f"{calls} call{'' if calls == 1 else 's'}: {counts}"
