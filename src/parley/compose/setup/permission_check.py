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
from parley.engine.approval.request import permission_request
from parley.engine.control.settings import CheckResult, explain
from parley.errors import UsageError
from parley.permissions.base import ToolRequest
from parley.protocol.base import Json
from parley.protocol.options import CliOptions
from parley.tools.base import InvalidInput, Tool, make_context, read_input
from parley.tools.catalog import canonical_name


class UnknownTool(UsageError):
    def __init__(self, name: str, hint: str = "") -> None:
        """`hint`: which one may be meant."""
        known = ", ".join(sorted(list_tools()))
        super().__init__(f"unknown tool {name!r}{hint} (choose from {known}, or a tool of an MCP server)")
        self.name = name


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
        composer = Composer(options, dict(os.environ if environment is None else environment), cwd, warn=warn)
        self.basis = composer.launch
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
        input = tool.prepare(input, self._context)
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
        return explain(decision, request, mode, self.basis.settings.merged.rules, self._ask_outcome())

    def _ask_outcome(self) -> str:
        if self._asks:
            return f"{self._asks} is asked"
        if self.basis.options.print:
            return "denied, because there is no one to ask"
        return "at a terminal you are asked, and an SDK asks its permission callback; with -p, the call is denied"
