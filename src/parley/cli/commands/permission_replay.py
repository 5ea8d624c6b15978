"""`parley permissions replay`: compare the decisions of a past session with those of other rules.

It uses only the rules given on the command line (`--settings`, `--allowedTools`, ...) and the settings
that `--setting-sources` names. Permissions that the client granted during the session are not
replayed. Nothing is written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from parley.cli.stdio import warn
from parley.compose.launch_context import LaunchContext, working_directory
from parley.compose.setup.permission_check import PermissionChecker
from parley.compose.stores import SessionStores
from parley.engine.approval.explanation import CheckResult
from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.settings.base import printable
from parley.stores.base import Entry

RULE_SETS = ("settings", "allowed_tools", "disallowed_tools", "setting_sources", "managed_settings", "permission_mode")
ORDER = ("allow", "ask", "deny")
MARKS = {"same": "=", "stricter": "+", "laxer": "-", "unknown": "?"}
WIDTH = 60


class LoggedCall(Struct, frozen=True, kw_only=True):
    """A tool call of the session."""

    id: str
    tool: str
    input: Json
    recorded: Json | None
    """The recorded decision; None if another engine ran the call, or it ended before a decision."""


class ReplayedCall(Struct, frozen=True, kw_only=True):
    """A call with its new decision."""

    call: LoggedCall
    now: CheckResult | None
    """None for an unknown tool."""
    change: str
    """`same`, `stricter`, `laxer`, or `unknown` if one of the decisions is missing."""

    def to_json(self) -> Json:
        now = None if self.now is None else {key: value for key, value in self.now.to_json().items() if key != "input"}
        call = self.call
        then = None if call.recorded is None else {"verdict": read_verdict(call.recorded), **call.recorded}
        names = {"tool_use_id": call.id, "tool": call.tool, "input": call.input}
        return {**names, "then": then, "now": now, "change": self.change}


def replay(name: str, options: CliOptions, as_json: bool) -> str:
    """Raises UsageError or UnknownSession."""
    if not any(field in options.given for field in RULE_SETS):
        raise UsageError(
            "replay requires rules to compare with; give --settings FILE, --allowedTools or --disallowedTools"
        )
    here = working_directory()
    basis = LaunchContext(options, dict(os.environ), here)
    basis.warn = warn
    sessions = SessionStores(basis)
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


def collect_calls(entries: Iterable[Entry]) -> Iterator[LoggedCall]:
    """Yield the tool calls in order, each with its last decision."""
    entries = list(entries)
    decisions = {str(e.message.get("tool_use_id")): e.message for e in entries if e.kind == "permission"}
    for entry in entries:
        content = (entry.message.get("message") or {}).get("content") if entry.kind == "assistant" else None
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                id = str(block.get("id"))
                yield LoggedCall(id=id, tool=str(block.get("name")), input=block["input"], recorded=decisions.get(id))


def find_start(entries: Iterable[Entry]) -> str | None:
    """Return the working directory of the session's first decision."""
    paths = (entry.message.get("cwd") for entry in entries if entry.kind == "permission")
    return next((path for path in paths if isinstance(path, str)), None)


def replay_call(checker: PermissionChecker, call: LoggedCall, mode: str | None) -> ReplayedCall:
    then = call.recorded or {}
    try:
        # The given mode, else the mode of the recorded decision, else the mode of the settings.
        now = checker.check(call.tool, call.input, (mode and checker.mode) or then.get("mode"), then.get("cwd"))
    except UsageError:
        return ReplayedCall(call=call, now=None, change="unknown")
    return ReplayedCall(call=call, now=now, change=compare(call.recorded, now.decision))


def compare(then: Json | None, now: str) -> str:
    if then is None or read_verdict(then) not in ORDER:
        return "unknown"
    step = ORDER.index(now) - ORDER.index(read_verdict(then))
    return "same" if step == 0 else "stricter" if step > 0 else "laxer"


def read_verdict(record: Json) -> str:
    """Return what the rules decided, whatever the user or client answered."""
    return "ask" if record.get("asked") else str(record.get("decision"))


def format_call(each: ReplayedCall) -> str:
    call, then = each.call, each.call.recorded
    before = "not recorded" if then is None else read_verdict(then)
    if then is not None and then.get("asked"):
        before += f" ({then.get('source')}: {then.get('decision')})"
    after = "unknown tool" if each.now is None else each.now.decision
    why = "" if each.now is None else (each.now.rule or {}).get("text") or each.now.reason
    text = msgspec.json.encode(call.input).decode()
    text = text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
    row = f"{MARKS[each.change]} {call.tool:12} {before:20} -> {after:6} {text}"
    return printable(f"{row}  [{why}]" if why else row)


def format_report(calls: int, summary: Json) -> str:
    counts = ", ".join(f"{count} {change}" for change, count in summary.items() if count or change != "unknown")
    return f"{calls} call{'' if calls == 1 else 's'}: {counts}"
