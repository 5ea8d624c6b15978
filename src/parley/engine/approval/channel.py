"""Sends permission requests to the client, or to the MCP tool that answers for it.

    channel.announce(call)
    with channel.waiting():
        reply = await channel.request(asked)

See also: `gate.py` decides what to ask and reads the reply, `recovery/pending_approvals.py` journals open requests.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from parley.engine.recovery.pending_approvals import PendingApprovals
from parley.engine.session.outbox import Activity, Outbox
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.dialects import PermissionRequest
from parley.protocol.messages.requests import CanUseTool
from parley.protocol.messages.system import Informational


class Approver(Protocol):
    """Answers permission requests: the client, or an MCP tool."""

    async def request(self, request: CanUseTool, request_id: str | None = None) -> Any:
        """The reply as JSON. Raises HostGone or HostError."""


class ApprovalChannel:
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
