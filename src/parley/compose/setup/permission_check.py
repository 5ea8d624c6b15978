"""Decide on a tool call as a session would, with the same composer, rules and approval gate.

checker = PermissionChecker(options, cwd, warn)
checker.check("Bash", {"command": "git push"}).to_json()   # decision, reason, rule, file and line, suggestions
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from parley.compose import permissions
from parley.compose.composer import Composer
from parley.compose.tools import list_tools, make_tool, make_workspace
from parley.engine.approval.gate import evaluate
from parley.engine.approval.request import input_digest, permission_request
from parley.errors import UsageError
from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.protocol.base import Json, Struct
from parley.protocol.options import CliOptions
from parley.tools.base import InvalidInput, Tool, make_context, prepare_input, read_input
from parley.tools.catalog import canonical_name

VERDICTS: dict[type, str] = {Allow: "allow", Ask: "ask", Deny: "deny"}


class UnknownTool(UsageError):
    def __init__(self, name: str, hint: str = "") -> None:
        """`hint`: which one may be meant."""
        known = ", ".join(sorted(list_tools()))
        super().__init__(f"unknown tool {name!r}{hint} (choose from {known}, or a tool of an MCP server)")
        self.name = name


class CheckResult(Struct, frozen=True, kw_only=True):
    """A decision and its explanation."""

    tool: str
    input: Json
    mode: str
    decision: str
    outcome: str
    """What would happen with the call."""
    source: str
    reason: str
    reason_type: str
    message: str
    rule: Json | None
    blocked_path: str | None
    suggestions: list[Json]
    input_sha256: str

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class PermissionChecker:
    """Decides on calls with the rules of a session that is started with these options."""

    def __init__(
        self,
        options: CliOptions,
        cwd: str,
        warn: Callable[[str], None],
        session_id: str = "00000000",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: by default that of this process. Raises UsageError for invalid options."""
        composer = Composer(options, dict(os.environ if environment is None else environment), cwd)
        self.basis = composer.launch
        self.basis.warn = warn
        for warning in self.basis.settings.warnings():
            warn(warning)
        self.mode = permissions.permission_mode(self.basis)
        self.offered_tools = composer.tools()
        self._policy = permissions.make_policy(self.basis, session_id)
        self._guarded = options.guard
        self._context = make_context(make_workspace(self.basis, session_id), self.basis.cwd)
        self._asks = permissions.prompt_tool(self.basis) or ("the host" if permissions.asks_host(self.basis) else None)

    def mode_source(self) -> str:
        """Return where the session's initial mode is set."""
        options, merged = self.basis.options, self.basis.settings.merged
        if options.skip_permissions or options.permission_mode is not None:
            return "command line"
        if merged.mode is not None and merged.mode.value == self.mode:
            return merged.mode.path
        return "default"

    def tool(self, name: str) -> Tool | None:
        """Return the tool, or None for one that cannot be made here. Raises UnknownTool."""
        known = canonical_name(name)
        if known in list_tools():
            return make_tool(known)
        if known.startswith("mcp__"):
            return None
        raise UnknownTool(name)

    def complete_input(self, tool: Tool | None, input: Json) -> Json:
        """Return the input in the form that is decided on. Raises UsageError if it is invalid for the tool."""
        if tool is None:
            return input
        input = prepare_input(tool, input, self._context)
        try:
            read_input(tool, input)
        except InvalidInput as exc:
            raise UsageError(f"the input is invalid, so there is no decision: {exc}") from None
        return input

    def check(self, name: str, input: Json, mode: str | None = None, cwd: str | None = None) -> CheckResult:
        """Raises UnknownTool."""
        tool, mode = self.tool(name), mode or self.mode
        self._context.state.cwd = cwd = cwd or self.basis.cwd
        if tool is None:
            request = ToolRequest(tool=canonical_name(name), input=input, cwd=cwd, plan_file=self._context.plan_file)
        else:
            request = permission_request(tool, input, self._context)
        decision = evaluate(self._policy, request, mode, guarded=self._guarded)
        return CheckResult(
            tool=request.tool,
            input=input,
            mode=mode,
            decision=VERDICTS[type(decision)],
            outcome=self._outcome(decision),
            source=getattr(decision, "source", "rule" if decision.rule is not None else ""),
            reason=decision.reason,
            reason_type=decision.reason_type,
            message=getattr(decision, "message", ""),
            rule=self._describe_rule(decision),
            blocked_path=getattr(decision, "blocked_path", None),
            suggestions=list(getattr(decision, "suggestions", ())),
            input_sha256=input_digest(input),
        )

    def _outcome(self, decision: Decision) -> str:
        if isinstance(decision, Ask):
            if self._asks:
                return f"{self._asks} is asked"
            if self.basis.options.print:
                return "denied, because there is no one to ask"
            return "at a terminal you are asked, and an SDK asks its permission callback; with -p, the call is denied"
        return "runs" if isinstance(decision, Allow) else "denied"

    def _describe_rule(self, decision: Decision) -> Json | None:
        """Return the rule that decided, with its file and line."""
        rule = decision.rule
        if rule is None:
            return None
        found: Json = {"text": rule.text, "behavior": rule.behavior, "source": rule.source}
        for written in self.basis.settings.merged.rules:
            if (written.text.strip(), written.behavior, written.source) == (rule.text, rule.behavior, rule.source):
                return {**found, "file": written.path, "line": written.line}
        return found
