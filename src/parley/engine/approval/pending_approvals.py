"""Sends permission requests and PreToolUse callbacks, and journals them while they are open.

    question    {"request_id", "tool_use_id"}     journalled before the request is sent
    answered    {"request_id", "tool_use_id"}     journalled when the reply arrives

Entries for a PreToolUse callback also have its `callback_id`. Entries for a call that the client runs have
`waits_for` (turn/client_tools.py); the result of the call answers them.

When a session is resumed while a request is open, the turn continues where it waited (recovery/resumed_turn.py) and
the same request is sent again under the same id.

See also: `gate.py` decides what to ask and reads the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import msgspec

from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Activity, Outbox
from parley.host import Host
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.dialects import PermissionRequest
from parley.protocol.messages.requests import CanUseTool, HookCallback, Request
from parley.protocol.messages.system import Informational


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
