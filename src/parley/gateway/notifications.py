"""Tell other systems that a question waits: by a signed webhook, and by a command.

Both get the same JSON: `{"event": "question", "question": {…}}`. The webhook has a header
`Parley-Signature: t=SECONDS,v1=HEX`, the HMAC-SHA256 of `SECONDS.BODY` under the secret, so that the receiver knows who
sent it and when. The command gets it on stdin. A notification that fails is repeated, then reported; the question stays
in the inbox in any case.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from parley.gateway.questions import Question
from parley.gateway.session_log.state import OPEN
from parley.protocol.base import Struct

if TYPE_CHECKING:
    import httpx2

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 10
COMMAND_SECONDS = 30
WAITING = 10_000
"""How many notifications may wait; older ones are dropped."""


class NotifySettings(Struct, frozen=True):
    url: str = ""
    secret: bytes = b""
    command: str = ""
    environment: Mapping[str, str] = {}
    """The environment of the command."""


class Notifier:
    """Sends a notification for every question that is asked."""

    def __init__(self, settings: NotifySettings, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._report = report
        self._queue: asyncio.Queue[Question] = asyncio.Queue(WAITING)
        self._told: set[tuple[str, str]] = set()
        """The questions that were notified: a resumed session asks them again."""

    def on_question(self, question: Question) -> None:
        """A listener of `Questions`."""
        key = question.session, question.request_id
        if question.state != OPEN:
            self._told.discard(key)
        elif key not in self._told:
            self._told.add(key)
            if self._queue.full():
                self._queue.get_nowait()
                self._report(f"dropped a notification, because more than {WAITING} were waiting to be sent")
            self._queue.put_nowait(question)

    async def run(self) -> None:
        """Send notifications for ever."""
        import httpx2

        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            while True:
                question = await self._queue.get()
                body = msgspec.json.encode({"event": "question", "question": question})
                ways = []
                if self._settings.url:
                    ways.append(self._post(client, body))
                if self._settings.command:
                    ways.append(self._run_command(body))
                for outcome in await asyncio.gather(*ways, return_exceptions=True):
                    if isinstance(outcome, Exception):  # such as too many open files
                        self._report(f"a notification failed: {type(outcome).__name__}: {outcome}")

    async def _post(self, client: httpx2.AsyncClient, body: bytes) -> None:
        import httpx2

        pause, problem = FIRST_PAUSE_SECONDS, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause)
                pause *= 4
            headers = {"Content-Type": "application/json", "Parley-Signature": sign(self._settings.secret, body)}
            try:
                response = await client.post(self._settings.url, content=body, headers=headers)
            except httpx2.HTTPError as exc:
                problem = str(exc) or type(exc).__name__
                continue
            if response.is_success:
                return
            problem = f"HTTP {response.status_code}"
        self._report(f"--notify-url: a notification failed after {ATTEMPTS} attempts: {problem}")

    async def _run_command(self, body: bytes) -> None:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", self._settings.command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self._settings.environment),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                _, errors = await process.communicate(body)
        except TimeoutError:
            kill_group(process.pid)
            await process.wait()
            self._report(f"--notify-command: the command did not end within {COMMAND_SECONDS} seconds and was killed")
            return
        if process.returncode:
            said = errors.decode(errors="replace").strip()[:500]
            self._report(f"--notify-command: the command exited with {process.returncode}: {said}")


def kill_group(pid: int) -> None:
    import os
    import signal
    from contextlib import suppress

    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def sign(secret: bytes, body: bytes, at: int | None = None) -> str:
    """The value of `Parley-Signature`."""
    at = int(time.time()) if at is None else at
    digest = hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
