"""Messages between parts of one process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import suppress

from parley.cluster.base import ClusterError, Handler, NoResponders, Request
from parley.cluster.log_checks import make_too_long
from parley.cluster.subjects import matches

MAX_PAYLOAD_BYTES = 1_000_000
logger = logging.getLogger(__name__)


class LocalBus:
    """Each subscription has a queue and a task of its own, so that a slow one does not delay the others."""

    max_payload_bytes = MAX_PAYLOAD_BYTES

    def __init__(self) -> None:
        self._subscriptions: list[LocalSubscription] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    async def request(self, subject: str, data: bytes, timeout_seconds: float) -> bytes:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def respond(answer: bytes) -> None:
            if not reply.done():
                reply.set_result(answer)

        if not self._send(Request(subject, data, respond)):
            raise NoResponders(f"no one listens to {subject}")
        try:
            async with asyncio.timeout(timeout_seconds):
                return await reply
        except TimeoutError:
            raise ClusterError(f"no reply on {subject} within {timeout_seconds:g} s") from None

    async def request_all(self, subject: str, data: bytes, timeout_seconds: float, most: int) -> list[bytes]:
        replies: asyncio.Queue[bytes] = asyncio.Queue()
        found: list[bytes] = []
        if self._send(Request(subject, data, replies.put)):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    while len(found) < most:
                        found.append(await replies.get())
        return found

    async def publish(self, subject: str, data: bytes) -> None:
        self._send(Request(subject, data, ignore))

    def _send(self, request: Request) -> bool:
        """Whether anyone listens."""
        if len(request.data) > self.max_payload_bytes:
            raise make_too_long("the bus", len(request.data), self.max_payload_bytes)
        listeners = [one for one in self._subscriptions if matches(one.subject, request.subject)]
        for listener in listeners:
            listener.queue.put_nowait(request)
        return bool(listeners)

    async def subscribe(self, subject: str, handler: Handler) -> LocalSubscription:
        subscription = LocalSubscription(self, subject)
        self._subscriptions.append(subscription)
        task = asyncio.create_task(subscription.run(handler))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return subscription

    def remove(self, subscription: LocalSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._numbers)}"

    async def close(self) -> None:
        self._subscriptions.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LocalSubscription:
    def __init__(self, bus: LocalBus, subject: str) -> None:
        self._bus = bus
        self.subject = subject
        self.queue: asyncio.Queue[Request | None] = asyncio.Queue()

    async def unsubscribe(self) -> None:
        self._bus.remove(self)
        self.queue.put_nowait(None)

    async def run(self, handler: Handler) -> None:
        while (request := await self.queue.get()) is not None:
            try:
                await handler(request)
            except Exception:
                logger.exception("a handler of %s failed", self.subject)


async def ignore(_answer: bytes) -> None:
    """Replies to a notice go nowhere."""
