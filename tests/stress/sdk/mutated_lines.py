"""Mutate the golden lines and send them to a client.

    python -m tests.stress.sdk.mutated_lines --count 100000 --seed 1

Whatever an engine writes, in whatever chunks, the client reads to the end of the stream, yields only its own message
classes, and raises only typed errors. The run depends only on the seed; the exit code is 0 if all of this holds.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, get_args

from parley import (
    ClaudeSDKError,
    HookJSONOutput,
    HookMatcher,
    Message,
    Options,
    PermissionResultAllow,
    create_sdk_mcp_server,
)
from parley.protocol.messages.panel_requests import GetSettings
from parley.sdk.runtime.connection import EngineConnection
from parley.sdk.runtime.mcp_servers import to_hosted
from parley.sdk.runtime.message_router import MessageRouter
from parley.sdk.runtime.request_handlers import RequestHandler
from parley.sdk.runtime.transport import Ended
from parley.sdk.runtime.turns import MessageStream, TurnRecord
from tests.stress.protocol.mutated_lines import BATCH, CAP_BYTES, Dice, chunks, golden_lines, mutate

CLASSES = get_args(Message)


class Deaf:
    """A wire that yields lines and ignores its input."""

    pid = None

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def open(self) -> None:
        """Nothing to open."""

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            await asyncio.sleep(0)
            yield piece

    def write(self, data: bytes) -> None:
        """Ignored."""

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_input(self) -> None:
        """Ignored."""

    async def ended(self) -> Ended:
        return Ended(0)

    async def close(self, busy: bool) -> Ended:
        return Ended(0)

    def abandon(self) -> None:
        """Nothing to end."""


async def may(*asked: Any) -> PermissionResultAllow:
    return PermissionResultAllow()


async def hook(*told: Any) -> HookJSONOutput:
    return {}


OPTIONS = Options(can_use_tool=may, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})


async def hear(pieces: list[bytes]) -> Counter[str]:
    """Run one client. Raises errors that are not typed."""
    inbox = MessageRouter()
    servers = {"calc": to_hosted(create_sdk_mcp_server("calc")["instance"])}
    link = EngineConnection(Deaf(pieces), inbox.receive, RequestHandler(OPTIONS, servers, MessageRouter()), CAP_BYTES)
    link.on_end = lambda: inbox.finish(None, closed=False)
    record = TurnRecord("00000000-0000-4000-8000-000000000001")
    inbox.turns.add(record)
    await link.open()
    asking = asyncio.create_task(ask(link))
    found: Counter[str] = Counter()
    for stream in (MessageStream(record), MessageStream(inbox.common)):
        try:
            async for message in stream:
                assert isinstance(message, CLASSES), message
                assert repr(message)
                assert isinstance(message.raw, dict)
                found[type(message).__name__] += 1
        except ClaudeSDKError as exc:
            found[type(exc).__name__] += 1
    await asking
    if link.error is not None:
        raise link.error
    await link.close()
    return found


async def ask(link: EngineConnection) -> None:
    try:
        await link.request(GetSettings())
    except ClaudeSDKError:
        return


async def run(count: int, seed: int) -> Counter[str]:
    dice, golden = Dice(seed), golden_lines()
    found: Counter[str] = Counter()
    fed = 0
    while fed < count:
        batch = [mutate(dice, golden) for _ in range(min(BATCH, count - fed))]
        try:
            found += await hear(list(chunks(dice, b"\n".join(batch))))
        except Exception as exc:
            exc.add_note(f"seed {seed}, in the {BATCH} lines after the first {fed}")
            raise
        fed += len(batch)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Let a client hear mutated golden lines.")
    parser.add_argument("--count", type=int, default=100_000, help="how many lines")
    parser.add_argument("--seed", type=int, default=1, help="where the dice start")
    given = parser.parse_args()
    logging.disable()  # failed callbacks are logged, and here thousands fail
    found = asyncio.run(run(given.count, given.seed))
    told = ", ".join(f"{number:,} {name}" for name, number in found.most_common())
    sys.stdout.write(f"{given.count:,} lines: {told}; only typed errors\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
