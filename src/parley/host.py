"""The engine's two ways out: it tells, and it asks.

Whatever stands outside (a program on a pipe, an SDK in this process, a browser) is a
host. The engine knows no more of it than this.
"""

from __future__ import annotations

from typing import Any, Protocol

from parley.protocol.base import Message
from parley.protocol.messages.control import ControlRequest
from parley.protocol.messages.requests import Request


class HostGone(Exception):
    """The host hung up, or withdrew, before it answered."""


class HostError(Exception):
    """The host answered with an error."""


class Host(Protocol):
    def send(self, message: Message) -> None:
        """Say it. Never waits."""

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        """The success payload of the host's answer. Raises HostGone or AnswerIsError.

        `request_id` is that of a question which was asked before; by default it gets a new one.

        Cancelling the wait withdraws the question.
        """

    async def drain(self) -> bool:
        """Wait until all that was told has left us; False if nobody reads it any more."""

    def pending_requests(self) -> list[ControlRequest]:
        """What was asked and is not answered yet, as it was said."""
