"""The tool calls of past sessions, and what a permission rule would have decided about them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from sqlite3 import Row
from typing import Any

import msgspec

from parley.compose.setup.permission_check import PermissionChecker
from parley.errors import UsageError
from parley.gateway.database import Database
from parley.gateway.index.tables import StoredLine, shorten
from parley.gateway.security.access import Principal, Scope
from parley.permissions.rule import Behavior, MalformedRule, parse_rule
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions, parse
from parley.tools.catalog import find_traits

LONGEST_VALUE = 2000
"""How much of a text is kept, such as the content of a file. A rule does not depend on it."""
LONGEST_INPUT = 16_000
"""A call with a longer input is not kept."""
MOST_CALLS = 1000
SECONDS = 3.0
"""How long a simulation may take. Calls that are left are not checked."""
LONGEST_RULE = 4000


class ToolCalls:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, session: str, number: int, at: float, line: StoredLine) -> None:
        """Add the calls of a message."""
        for position, block in enumerate(line.blocks if line.type == "assistant" else ()):
            if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                tool = str(block.get("name"))
                input = msgspec.json.encode(shorten_values(block["input"], find_traits(tool).subject_field))
                if len(input) <= LONGEST_INPUT:
                    self._database.change(
                        "INSERT INTO tool_calls (session, number, position, time, tool, input)"
                        " VALUES (?, ?, ?, ?, ?, ?)",
                        *(session, number, position, at, tool, input),
                    )

    def newest(self, principal: Principal) -> list[Row]:
        """The last calls of the sessions that a principal may see."""
        tenant = None if Scope.ADMIN in principal.scopes else principal.tenant
        return self._database.rows(
            "SELECT tool_calls.*, sessions.cwd, sessions.options FROM tool_calls JOIN sessions ON sessions.id = session"
            " WHERE (? IS NULL OR tenant = ?) ORDER BY time DESC, session, number DESC, position DESC LIMIT ?",
            *(tenant, tenant, MOST_CALLS),
        )


class RuleSimulation(Struct, frozen=True):
    """Decides on past calls as if a rule had been there."""

    rule: str
    behavior: Behavior
    argv: Sequence[str]
    """The options of the server for all sessions."""
    environment: Mapping[str, str]

    def run(self, calls: Sequence[Row]) -> Json:
        """What the rule decides that would have been asked or decided otherwise."""
        decided: list[Json] = []
        asked = checked = 0
        for call, before, after in self._decide(calls):
            checked += 1
            is_ours = after.rule is not None and after.rule["text"] == self.rule
            if is_ours and after.decision == self.behavior != before.decision:
                decided.append(describe_call(call))
            elif after.decision == "ask":
                asked += 1
        other = "deny" if self.behavior == "allow" else "allow"
        found = {f"would_{self.behavior}": decided, f"would_{other}": []}
        return {"rule": self.rule, "behavior": self.behavior, **found, "would_still_ask": asked, "checked": checked}

    def _decide(self, calls: Sequence[Row]) -> Iterator[tuple[Row, Any, Any]]:
        """Every call with the decisions without and with the rule."""
        last_moment = time.monotonic() + SECONDS
        checkers: dict[tuple[str, str], tuple[PermissionChecker, PermissionChecker]] = {}
        for call in calls:
            if time.monotonic() > last_moment:
                return
            key = call["cwd"], call["options"]
            try:
                if key not in checkers:
                    checkers[key] = self._make_checkers(*key)
                input = msgspec.json.decode(call["input"])
                before, after = (checker.check(call["tool"], input) for checker in checkers[key])
            except (UsageError, OSError):  # its folder or tool is gone
                continue
            yield call, before, after

    def _make_checkers(self, cwd: str, options: str | bytes) -> tuple[PermissionChecker, PermissionChecker]:
        """Raises UsageError."""
        before = parse([*self.argv, *msgspec.json.decode(options, type=list[str])]).options
        return self._make_checker(before, cwd), self._make_checker(self._add_rule(before), cwd)

    def _make_checker(self, options: CliOptions, cwd: str) -> PermissionChecker:
        return PermissionChecker(options, cwd, lambda text: None, environment=self.environment)

    def _add_rule(self, options: CliOptions) -> CliOptions:
        name = "allowed_tools" if self.behavior == "allow" else "disallowed_tools"
        return options.replace(**{name: (*(getattr(options, name) or ()), self.rule)})


def read_rule(given: Json) -> tuple[str, Behavior]:
    """The `rule` and the `behavior` of a request. Raises UsageError."""
    rule, behavior = given.get("rule"), given.get("behavior", "allow")
    if behavior not in ("allow", "deny"):
        raise UsageError(f"`behavior` must be 'allow' or 'deny', not {behavior!r:.50}")
    if not isinstance(rule, str) or len(rule) > LONGEST_RULE:
        raise UsageError(f"`rule` must be a text of at most {LONGEST_RULE} characters, such as 'Bash(git *)'")
    parsed = parse_rule(rule, behavior, "session", "/")
    if isinstance(parsed, MalformedRule):
        raise UsageError(f"{rule!r:.200} is not a rule: {parsed.reason}")
    return rule.strip(), behavior


def describe_call(call: Row) -> Json:
    input = msgspec.json.decode(call["input"])
    subject = input.get(find_traits(call["tool"]).subject_field)
    summary = shorten(subject if isinstance(subject, str) else msgspec.json.encode(input).decode())
    return {
        "session": call["session"],
        "number": call["number"],
        "time": call["time"],
        "tool": call["tool"],
        "input_summary": summary,
    }


def shorten_values(input: Json, subject: str) -> Json:
    return {
        name: value[:LONGEST_VALUE] if isinstance(value, str) and name != subject else value
        for name, value in input.items()
    }
