"""The client as the engine sees it: it receives messages and answers requests.

A host may be a program on a pipe, an SDK in this process, or a browser.
"""

from __future__ import annotations

from typing import Any, Protocol

from parley.protocol.base import Message
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import Request


class HostGone(Exception):
    """The client disconnected, or cancelled the request, before it replied."""


class HostError(Exception):
    """The client replied with an error."""


class SendMessages(Protocol):
    def __call__(self, *messages: Message) -> None:
        """Send messages, several if they are ready together. Never waits."""


class Host(Protocol):
    def send(self, *messages: Message) -> None:
        """Send messages, several if they are ready together. Never waits."""

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        """Send a request and return the payload of the reply. Raises HostGone or HostError.

        `request_id` repeats an earlier request; by default the request gets a new id. Cancelling the wait cancels
        the request.
        """

    async def drain(self) -> bool:
        """Wait until all messages are written; False if the client is gone."""

    def pending_requests(self) -> list[ControlRequest]:
        """The requests without a reply, as they were sent."""


class NoHost:
    """A host without a client that could answer. Base of hosts that only show or count messages."""

    why = "there is no client that could answer requests"

    def send(self, *messages: Message) -> None:
        pass

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        raise HostGone(self.why)

    async def drain(self) -> bool:
        return True

    def pending_requests(self) -> list[ControlRequest]:
        return []
