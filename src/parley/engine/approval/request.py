"""What a decision on a tool call is about, and the request that asks the client for one.

`build_can_use_tool` builds the request. `PendingApprovals` sends it, and PreToolUse callbacks, and journals them while
they are open:

    question    {"request_id", "tool_use_id"}     journalled before the request is sent
    answered    {"request_id", "tool_use_id"}     journalled when the reply arrives

Entries for a PreToolUse callback also have its `callback_id`. Entries for a call that the client runs have
`waits_for` (turn/client_tools.py); the result of the call answers them.

When a session is resumed while a request is open, the turn continues where it waited (session/recover.py) and
the same request is sent again under the same id.

See also: `gate.py` decides what to ask and reads the reply.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import msgspec

from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.host import Host
from parley.permissions.base import Ask, ToolRequest
from parley.protocol.base import UNSET, Json, Struct, UnsetType
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.dialects import PermissionRequest
from parley.protocol.messages.requests import CanUseTool, HookCallback, Request
from parley.protocol.messages.system import Informational
from parley.tools.base import Context, Tool
from parley.tools.catalog import JUDGED_BY_CALL, find_traits

SUBJECTS = ("description", "command", "url", "query")
"""Input fields that describe a call, best first."""
PATHS = ("file_path", "notebook_path", "path")
BINDING_REASONS = frozenset({"rule", "safetyCheck", "sandboxOverride"})
"""Reasons to ask that neither a hook nor an allow rule can override, so no rule is offered."""


class PendingCall(Struct, frozen=True, kw_only=True):
    """A tool call that waits for its decision."""

    call: ToolUse
    tool: Tool
    request: ToolRequest
    """The facts that the rules judge."""
    agent: Json | None = None
    """The subagent that calls, as hooks see it; None for the session's own model."""

    @property
    def agent_id(self) -> str | None:
        return None if self.agent is None else self.agent["agent_id"]


def permission_request(tool: Tool, input: Json, context: Context) -> ToolRequest:
    """The facts about a call that the rules judge."""
    return ToolRequest(
        tool=tool.name,
        input=input,
        cwd=context.state.cwd,
        reads_only=tool.reads_only,
        asks_user=tool.asks_person(input, context),
        plan_file=context.plan_file,
        runs_elsewhere=tool.runs_elsewhere,
        worktree=context.worktree,
        server=tool.server_name,
        search_path=context.environment.get("PATH", ""),
        home=context.environment.get("HOME", ""),
        others_run=context.processes.is_running_commands,
    )


def input_digest(input: Json) -> str:
    """SHA-256 of the input as JSON with sorted keys and no spaces, in UTF-8.

    It binds an approval to exactly the input that was shown: it is part of the request and of the journalled decision,
    and is checked again right before the tool runs.
    """
    import hashlib

    return hashlib.sha256(msgspec.json.encode(input, order="sorted")).hexdigest()


def build_can_use_tool(question: Ask, pending: PendingCall) -> CanUseTool:
    """The request that asks the client about a call."""
    call, tool = pending.call, pending.tool
    only_person = pending.request.asks_user
    shown = tool.display_name or call.name
    about = description(pending.request)
    if not (about.isascii() and about.isprintable()):
        from parley.mcp.content import reveal

        about = reveal(about)
    return CanUseTool(
        tool_name=call.name,
        mcp_server=tool.mcp_server or UNSET,
        display_name=shown,
        title=title(call.name, shown, about),
        input=call.input,
        input_sha256=input_digest(call.input),
        description=about or UNSET,
        permission_suggestions=list(question.suggestions) or UNSET,
        blocked_path=question.blocked_path or UNSET,
        decision_reason=question.reason or UNSET,
        decision_reason_type=question.reason_type or UNSET,
        decision_reason_hook_event="PreToolUse" if question.reason_type == "hook" else UNSET,
        decision_reason_hook_source="settings" if question.reason_type == "hook" else UNSET,
        matched_ask_rule=question.rule.text if question.rule is not None else UNSET,
        tool_use_id=call.id,
        agent_id=pending.agent_id or UNSET,
        requires_user_interaction=true_or_unset(only_person),
        server_policy_ask_only=true_or_unset(is_about_tool_kind(question, call.name, only_person)),
        suppress_always_allow_rule=true_or_unset(question.reason_type in BINDING_REASONS),
        default_to_no=true_or_unset(question.reason_type == "safetyCheck"),
    )


def true_or_unset(condition: bool) -> bool | UnsetType:
    """False is left out of the line."""
    return True if condition else UNSET


def is_about_tool_kind(question: Ask, name: str, only_person: bool) -> bool:
    """Whether the client is asked only because of the tool, or the directory, and not because of the input."""
    return (
        find_traits(name).effect not in JUDGED_BY_CALL
        and not only_person
        and question.reason_type in ("", "workingDir")
    )


def title(name: str, shown: str, about: str) -> str:
    """One sentence for a person. Text of the model appears only where it cannot be mistaken for ours."""
    template = find_traits(name).title
    if "{about}" in template and not about:
        template = ""
    return (template or "Use {shown}?").format(about=about, shown=shown)


def describe_call(call: ToolUse, cwd: str) -> str:
    """What a call is about: the command, not what the model says about it."""
    command = call.input.get("command")
    return command if isinstance(command, str) else description(ToolRequest(tool=call.name, input=call.input, cwd=cwd))


def description(request: ToolRequest) -> str:
    """What a call is about, in a few words. Paths are relative to the working directory."""
    input = request.input
    fields = (*find_traits(request.tool).path_fields, *PATHS)
    if path := next((input[key] for key in fields if isinstance(input.get(key), str)), ""):
        inner = os.path.relpath(path, request.cwd) if path.startswith("/") else path
        return path if inner.startswith("..") else inner
    return next((input[key] for key in SUBJECTS if isinstance(input.get(key), str) and input[key]), "")


class PendingApprovals:
    """Requests about tool calls, journalled while they are open."""

    def __init__(self, journal: Journal, new_id: Callable[[], str]) -> None:
        self._journal = journal
        self._new_id = new_id
        self._waiting: set[str] = set()
        """Ids in use. Two requests may look alike: a callback registered twice, or two calls with one id."""

    async def request(self, asked: CanUseTool | HookCallback, send: Callable[[str], Awaitable[Any]]) -> Any:
        """The reply to a request that `send` sends under the given id. Raises HostGone or HostError."""
        request_id = self._open(asked)
        self._waiting.add(request_id)
        try:
            answer = await send(request_id)
        finally:
            self._waiting.discard(request_id)
        self._journal.append_event("answered", {"request_id": request_id, **call_names(asked)})
        return answer

    def _open(self, asked: CanUseTool | HookCallback) -> str:
        """The id for a request: the one that an earlier engine left open, or a new one."""
        about = call_names(asked)
        open_id = self._journal.questions.get(str(asked.tool_use_id), {}).get(about.get("callback_id", ""))
        if open_id is not None and open_id not in self._waiting:
            return open_id
        request_id = self._new_id()
        self._journal.append_event("question", {"request_id": request_id, **about})
        return request_id


class RecordingHost:
    """Sends hook callbacks to the client. Those of PreToolUse are journalled while they are open.

    Other events are not journalled: they are about the past, or are sent again with the next prompt. The input of a
    callback is cut to the longest line.
    """

    def __init__(self, host: Host, pending: PendingApprovals, max_bytes: int, warn: Callable[[str], None]) -> None:
        self._host = host
        self._pending = pending
        self._max_bytes = max_bytes
        self._warn = warn
        self.send = host.send
        self.pending_requests = host.pending_requests
        self.drain = host.drain

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if not isinstance(request, HookCallback):
            return await self._host.request(request, request_id)
        original, request = request, self._fit(request)
        if request.input.get("hook_event_name") != "PreToolUse":
            return await self._host.request(request, request_id)
        answer = await self._pending.request(request, partial(self._host.request, request))
        if request is not original:
            self._refuse_unless_denied(answer)
        return answer

    def _refuse_unless_denied(self, answer: Any) -> None:
        """Raises HookFailed. A hook that saw only a part of the input may deny the call, and nothing else."""
        from parley.hooks.output import HookFailed, is_denial, parse_output

        if not is_denial(parse_output(answer)):
            raise HookFailed(
                f"the input does not fit into a line of {self._max_bytes} bytes, so the hook received only part of it"
            )

    def _fit(self, request: HookCallback) -> HookCallback:
        from parley.engine.turn.result_spill import fit_input

        input = fit_input(request.input, self._max_bytes)
        if input is request.input:
            return request
        event = input.get("hook_event_name")
        self._warn(f"callback {request.callback_id} of {event}: its input is truncated to fit into a line")
        return msgspec.structs.replace(request, input=input)


class Approver(Protocol):
    """Answers permission requests: the client, or an MCP tool."""

    async def request(self, request: CanUseTool, request_id: str | None = None) -> Any:
        """The reply as JSON. Raises HostGone or HostError."""


class ApprovalChannel:
    """Sends permission requests to the client, or to the MCP tool that answers for it."""

    def __init__(
        self, approver: Approver | None, outbox: Outbox, activity: Activity, pending: PendingApprovals
    ) -> None:
        self._approver = approver
        self._outbox = outbox
        self._activity = activity
        self._pending = pending

    @property
    def can_ask(self) -> bool:
        """Whether there is an approver. Without one, calls that need a reply are denied."""
        return self._approver is not None

    def redirect(self, approver: Approver) -> None:
        """Send the next requests to another approver."""
        self._approver = approver

    def announce(self, call: ToolUse) -> None:
        """Tell clients that show a call before they are asked about it."""
        self._outbox.send(PermissionRequest(tool=call.name, params=call.input))

    def report(self, text: str) -> None:
        """Tell the client about a decision that is not what a hook asked for."""
        self._outbox.send(Informational(content=text, level="warning"))

    def waiting(self) -> AbstractContextManager[None]:
        """The state of the session is `requires_action` while the body waits for a reply."""
        return self._activity.waiting()

    def request(self, asked: CanUseTool) -> Awaitable[Any]:
        """The reply as JSON. The request is journalled while it is open. Raises HostGone or HostError."""
        approver = self._approver
        assert approver is not None
        return self._pending.request(asked, lambda request_id: approver.request(asked, request_id))


def call_names(asked: CanUseTool | HookCallback) -> Json:
    own = {"callback_id": asked.callback_id} if isinstance(asked, HookCallback) else {}
    return {"tool_use_id": asked.tool_use_id, **own}
