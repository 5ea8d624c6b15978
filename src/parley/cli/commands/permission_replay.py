"""`parley permissions replay`: a past session call by call, what was decided then and what other rules would decide.

Only the rules that are given count (`--settings`, `--allowedTools`, ...), and those of the
settings that `--setting-sources` names. What the host granted along the way is not
replayed. Nothing is written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from parley.cli.commands.permission_check import Judge, Judged
from parley.cli.stdio import complain
from parley.compose.launch_context import Basis, working_directory
from parley.compose.stores import Sessions
from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.protocol.options import Options
from parley.settings.base import shown
from parley.stores.base import Entry

RULE_SETS = ("settings", "allowed_tools", "disallowed_tools", "setting_sources", "managed_settings", "permission_mode")
ORDER = ("allow", "ask", "deny")
MARKS = {"same": "=", "stricter": "+", "laxer": "-", "unknown": "?"}
WIDTH = 60


class Call(Struct, frozen=True, kw_only=True):
    """A tool call of the session."""

    id: str
    tool: str
    input: Json
    then: Json | None
    """The decision on record; None if there is none: another engine ran it, or it never came to a decision."""


class Replayed(Struct, frozen=True, kw_only=True):
    call: Call
    now: Judged | None
    """None for a tool that is not known here."""
    change: str
    """`same`, `stricter`, `laxer`, or `unknown` where one side is missing."""

    def json(self) -> Json:
        now = None if self.now is None else {key: value for key, value in self.now.json().items() if key != "input"}
        call = self.call
        then = None if call.then is None else {"verdict": verdict_of(call.then), **call.then}
        names = {"tool_use_id": call.id, "tool": call.tool, "input": call.input}
        return {**names, "then": then, "now": now, "change": self.change}


def replay(session_id: str, options: Options, as_json: bool) -> str:
    """Raises UsageError or UnknownSession."""
    if not any(field in options.given for field in RULE_SETS):
        raise UsageError("replay needs rules to compare with: --settings FILE, or --allowedTools, --disallowedTools")
    here = working_directory()
    basis = Basis(options, dict(os.environ), here)
    basis.complain = complain
    entries = list(Sessions(basis).store(session_id).read(session_id))
    calls = list(calls_in(entries))
    alone = {} if options.setting_sources is not None else {"setting_sources": ()}
    # A path in --settings is seen from here; the rules, from where the session worked.
    judge = Judge(located(options, here).but(**alone), began_in(entries) or here, complain, session_id)
    is_given = options.skip_permissions or options.permission_mode is not None
    done = [replayed(judge, call, judge.mode if is_given else None) for call in calls]
    summary = dict.fromkeys(MARKS, 0) | Counter(each.change for each in done)
    if as_json:
        report = {"session_id": session_id, "calls": [each.json() for each in done], "summary": summary}
        return msgspec.json.encode(report).decode()
    return "\n".join([*map(line, done), in_words(len(done), summary)])


def located(options: Options, here: str) -> Options:
    given = options.settings
    is_path = given is not None and not given.lstrip().startswith("{")
    return options.but(settings=os.path.join(here, given)) if given and is_path else options


def calls_in(entries: Iterable[Entry]) -> Iterator[Call]:
    """The tool calls in their order, each with its last decision."""
    entries = list(entries)
    decided = {str(entry.message.get("tool_use_id")): entry.message for entry in entries if entry.kind == "permission"}
    for entry in entries:
        content = (entry.message.get("message") or {}).get("content") if entry.kind == "assistant" else None
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                id = str(block.get("id"))
                yield Call(id=id, tool=str(block.get("name")), input=block["input"], then=decided.get(id))


def began_in(entries: Iterable[Entry]) -> str | None:
    """Where the session worked: where its first decision was taken."""
    places = (entry.message.get("cwd") for entry in entries if entry.kind == "permission")
    return next((place for place in places if isinstance(place, str)), None)


def replayed(judge: Judge, call: Call, mode: str | None) -> Replayed:
    then = call.then or {}
    try:
        # The mode that is given, else the one it was decided in, else the one of the settings.
        now = judge.judge(call.tool, call.input, (mode and judge.mode) or then.get("mode"), then.get("cwd"))
    except UsageError:
        return Replayed(call=call, now=None, change="unknown")
    return Replayed(call=call, now=now, change=change(call.then, now.decision))


def change(then: Json | None, now: str) -> str:
    if then is None or verdict_of(then) not in ORDER:
        return "unknown"
    step = ORDER.index(now) - ORDER.index(verdict_of(then))
    return "same" if step == 0 else "stricter" if step > 0 else "laxer"


def verdict_of(record: Json) -> str:
    """What the rules said then; who was asked may have said either."""
    return "ask" if record.get("asked") else str(record.get("decision"))


def line(each: Replayed) -> str:
    call, then = each.call, each.call.then
    before = "not on record" if then is None else verdict_of(then)
    if then is not None and then.get("asked"):
        before += f" ({then.get('source')}: {then.get('decision')})"
    after = "no such tool" if each.now is None else each.now.decision
    why = "" if each.now is None else (each.now.rule or {}).get("text") or each.now.reason
    about = msgspec.json.encode(call.input).decode()
    about = about if len(about) <= WIDTH else f"{about[: WIDTH - 1]}…"
    row = f"{MARKS[each.change]} {call.tool:12} {before:20} -> {after:6} {about}"
    return shown(f"{row}  [{why}]" if why else row)


def in_words(calls: int, summary: Json) -> str:
    counted = ", ".join(f"{count} {change}" for change, count in summary.items() if count or change != "unknown")
    return f"{calls} call{'' if calls == 1 else 's'}: {counted}"
