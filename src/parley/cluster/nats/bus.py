"""Messages on core NATS: they are not stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from parley.cluster.base import Handler, Request
from parley.cluster.cluster_secret import BadSignature
from parley.cluster.nats.connection import NatsConnection

if TYPE_CHECKING:
    from nats.aio.msg import Msg

logger = logging.getLogger(__name__)


class NatsBus:
    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    @property
    def max_payload_bytes(self) -> int:
        return self._connection.max_payload_bytes

    def new_inbox(self) -> str:
        return self._connection.new_inbox()

    async def request(self, subject: str, data: bytes, timeout_seconds: float) -> bytes:
        return (await self._connection.request(subject, data, timeout_seconds=timeout_seconds)).data

    async def request_all(self, subject: str, data: bytes, timeout_seconds: float, most: int) -> list[bytes]:
        found: list[bytes] = []
        clock = asyncio.get_running_loop().time
        end = clock() + timeout_seconds
        async with self._connection.open_inbox() as inbox:
            await self._connection.publish(subject, data, inbox.subject)
            while len(found) < most and (reply := await inbox.receive(max(0.0, end - clock()))):
                if (reply.headers or {}).get("Status") == "503":  # no one listens
                    break
                found.append(reply.data)
        return found

    async def publish(self, subject: str, data: bytes) -> None:
        await self._connection.publish(subject, data)

    async def subscribe(self, subject: str, handler: Handler) -> BusSubscription:
        async def handle(message: Msg) -> None:
            async def respond(data: bytes) -> None:
                if message.reply:
                    await self._connection.publish(message.reply, data)

            try:
                await handler(Request(message.subject, message.data, respond))
            except (BadSignature, msgspec.MsgspecError, ValueError) as exc:
                logger.warning("a message on %s is refused: %s", message.subject, exc)

        subscription = await self._connection.subscribe(subject, handle)
        return BusSubscription(lambda: self._connection.unsubscribe(subscription))


class BusSubscription:
    def __init__(self, end: Callable[[], Awaitable[None]]) -> None:
        self._end = end

    async def unsubscribe(self) -> None:
        await self._end()
