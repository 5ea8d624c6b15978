"""A session between a real host end and a real engine end, joined in memory.

    async with SessionHarness(tmp_path, "[[turn]]\\ntext = 'Hello.'") as harness:
        harness.send({"type": "user", "message": {"role": "user", "content": "Hi"}})
        result = await harness.receive("result")

Ids and times are counted, not drawn, so that the same talk gives the same bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from parley.compose.composer import Composer
from parley.compose.registry import make_dialect
from parley.engine.clock import Clock
from parley.engine.session.config import SessionConfig
from parley.engine.session.pump import Pump, serve
from parley.engine.session.session import Session
from parley.protocol.base import Role
from parley.protocol.connection import Connection
from parley.protocol.options import CliOptions
from parley.transports.base import create_pair
from tests.helpers import remote_workspace
from tests.helpers.patience import PATIENCE_SECONDS

Json = dict[str, Any]


def counted() -> Clock:
    """Ids 1, 2, 3 …, and a clock that moves a millisecond each time it is asked."""
    numbers, ticks = count(1), count(0)

    def seconds() -> float:
        return 1_800_000_000 + next(ticks) / 1000

    return Clock(new_uuid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}", seconds=seconds, monotonic=seconds)


class SessionHarness:
    def __init__(self, folder: Path, script: str, **options: Any) -> None:
        self.folder = folder
        (folder / "script.toml").write_text(script)
        self.environment = {
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder),
            "PATH": "/usr/bin:/bin",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "IS_SANDBOX": "1",  # the tests may run as root, and some bypass permissions
        }
        self.options = CliOptions(**{"model": f"scripted:{folder / 'script.toml'}", **options})
        self.warnings: list[str] = []
        self.lines: list[Json] = []
        self.raw = b""
        self.stamp = counted()
        self._seen = 0
        self._news = asyncio.Event()

    def composed(self) -> SessionConfig:
        options = remote_workspace.with_workspace(self.options, self.environment, self.folder)
        composer = Composer(options, self.environment, str(self.folder), self.stamp, warn=self.warnings.append)
        return self.furnish(composer.make_config())

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        """Override this to give a session parts of its own."""
        return setup

    async def __aenter__(self) -> SessionHarness:
        setup = self.composed()
        self._host, engine = create_pair()
        pump = Pump(Connection(Role.ENGINE, make_dialect(self.options, self.stamp)), engine, self.stamp.new_uuid)
        self.session: Session = Session(setup, pump)
        self._serving = asyncio.create_task(serve(engine, pump, self.session))
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the input, and wait until the engine has finished."""
        self._host.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._serving
        self._listening.cancel()
        self.session.journal.close()

    async def crash(self) -> None:
        """End the engine at once, wherever it is."""
        self._serving.cancel()
        await asyncio.wait({self._serving})
        self._listening.cancel()
        self.session.journal.close()

    def send(self, *lines: Json | bytes) -> None:
        for line in lines:
            self._host.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    def prompt(self, text: str | list[Json], **fields: Any) -> None:
        self.send({"type": "user", "message": {"role": "user", "content": text}, **fields})

    async def request(self, subtype: str, **fields: Any) -> Json:
        """The answer to a control request."""
        request_id = f"ask-{subtype}-{len(self.lines)}"
        self.send({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})
        return await self.receive_until(lambda line: line.get("response", {}).get("request_id") == request_id)

    async def receive(self, kind: str, subtype: str | None = None) -> Json:
        """The next line of a type, and of a subtype if one is given."""
        return await self.receive_until(lambda line: kind_of(line) == kind and subtype in (None, line.get("subtype")))

    async def receive_until(self, wanted: Any) -> Json:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                while self._seen < len(self.lines):
                    self._seen += 1
                    if wanted(self.lines[self._seen - 1]):
                        return self.lines[self._seen - 1]
                self._news.clear()
                await self._news.wait()

    def messages(self, kind: str) -> Iterator[Json]:
        return (line for line in self.lines if kind_of(line) == kind)

    async def _listen(self) -> None:
        rest = b""
        async for chunk in self._host.chunks():
            self.raw += chunk
            *lines, rest = (rest + chunk).split(b"\n")
            self.lines += [json.loads(line) for line in lines]
            self._news.set()


def kind_of(line: Json) -> Any:
    """The type of a line; in JSON-RPC, of what the envelope holds."""
    inner = line.get("result") if "jsonrpc" in line else line
    return inner.get("type") if isinstance(inner, dict) else None


def texts(lines: Iterator[Json]) -> list[str]:
    """The texts of assistant lines."""
    return [block["text"] for line in lines for block in line["message"]["content"] if block["type"] == "text"]
