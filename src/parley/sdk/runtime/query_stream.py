"""The messages of one `query()`: prompts are sent, and the engine's input is closed when all are answered.

The engine's input stays open while the engine may still send a request, so callbacks are also answered for agents that
run in the background.

See also: `query` in `../query.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from parley.protocol import base
from parley.protocol.base import Json
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import BackgroundTasksChanged, Init
from parley.sdk.client import Client
from parley.sdk.options import Options
from parley.sdk.runtime.background import Job, start
from parley.sdk.runtime.prompts import check_prompt, new_uuid, send_all, send_prompt
from parley.sdk.runtime.transport import Transport, Wire
from parley.sdk.types import messages as ours

BACKGROUND_SECONDS = 600.0
"""How long the input stays open for background tasks. The engine waits for the same time."""
NOTICE_SECONDS = 2.0
"""How long after a task has ended its notification may still start a turn."""


class QueryProgress:
    """Tracks whether every prompt has been answered."""

    def __init__(self) -> None:
        self.all_sent = False
        self.has_lifecycle = False
        """Whether the engine reports the state of prompts. If it does not, results are counted instead."""
        self.open: set[str] = set()
        self.ended: set[str] = set()
        self.results = 0
        self.sent = 0
        self.tasks = 0
        self.in_turn = False
        self.error: Exception | None = None
        """The exception that the program's iterable of prompts raised, after the prompts before it were answered."""

    def update(self, message: base.Message) -> None:
        match message:
            case Init():
                self.in_turn = True
            case Result(user_message_uuid=uuid, user_message_uuids=uuids):
                self.in_turn = False
                self.results += 1
                for each in (uuid, *(uuids or ())):
                    self._end(str(each))
            case base.Refused(kind="result"):
                self.in_turn = False
                self.results += 1
            case CommandLifecycle(command_uuid=uuid, state=state):
                self.has_lifecycle = True
                if state in ("completed", "cancelled"):
                    self._end(uuid)
            case BackgroundTasksChanged(tasks=tasks):
                self.tasks = len(tasks)

    def add(self, uuid: str) -> None:
        """Record a sent prompt. The engine does not run a prompt again that it has already answered."""
        if uuid not in self.ended:
            self.open.add(uuid)

    def _end(self, uuid: str) -> None:
        self.open.discard(uuid)
        self.ended.add(uuid)

    @property
    def is_answered(self) -> bool:
        has_open = self.open and self.has_lifecycle
        return self.all_sent and not has_open and not self.in_turn and (self.results > 0 or self.sent == 0)


class QueryStream(AsyncIterator[ours.Message]):
    """The messages of one `query()`. The engine is started by the first `anext`."""

    def __init__(
        self, prompt: str | AsyncIterable[Json], options: Options[Any] | None, transport: Transport | Wire | None
    ) -> None:
        check_prompt(prompt)
        self._prompt = prompt
        self._client: Client[Any] = Client(options, transport)
        self._progress = QueryProgress()
        self._jobs: list[Job] = []
        self._started = False
        self._finished = False

    def __aiter__(self) -> QueryStream:
        return self

    async def __anext__(self) -> ours.Message:
        if self._finished:
            raise StopAsyncIteration
        try:
            if not self._started:
                await self._start()
            return await self._client.receive_messages().__anext__()
        except StopAsyncIteration:
            await self.aclose()
        except BaseException:
            await self.aclose()
            raise
        raise self._progress.error or StopAsyncIteration

    async def aclose(self) -> None:
        """End the engine and its children now."""
        self._finished = True
        for job in self._jobs:
            job.cancel()
        await self._client.close()

    async def _start(self) -> None:
        self._started = True
        await self._client.connect()
        progress = self._progress
        watch = EndWatcher(progress, self._client)
        self._client.router.watchers.append(watch)
        if isinstance(self._prompt, str):
            progress.sent, progress.all_sent = 1, True
            await self._client.query(self._prompt)
            return
        # Without a reference to the stream, so that a dropped stream can be collected.
        link, router, given = self._client.connected(), self._client.router, self._prompt
        verbatim = self._client.options.verbatim_prompts

        def send(line: Json) -> None:
            """Send a line. User messages get an id, so that their end can be recognized."""
            is_user = line.get("type") == "user"
            if is_user and not line.get("uuid"):
                line["uuid"] = new_uuid()
                router.own_uuids.add(line["uuid"])
            send_prompt(link, router, line, verbatim)
            progress.sent += 1
            if is_user:
                progress.add(str(line["uuid"]))

        async def work() -> None:
            try:
                progress.error = await send_all(link, given, send)
            finally:
                progress.all_sent = True
                watch.check()

        self._jobs.append(start(work))


class EndWatcher:
    """Closes the engine's input when nothing is left to answer.

    The router owns it; it holds no reference to the stream, so that a dropped stream can be collected.
    """

    def __init__(self, progress: QueryProgress, client: Client[Any]) -> None:
        self._progress = progress
        self._wire = client.connected().wire
        options = client.options
        self._has_callbacks = bool(
            options.can_use_tool or options.hooks or client.servers or options.on_question or options.on_plan
        )
        self._waiting: Job | None = None
        self._done = False

    def __call__(self, message: base.Message) -> None:
        had_tasks = self._progress.tasks
        self._progress.update(message)
        if self._done:
            return
        if self._waiting is not None and (self._progress.tasks != had_tasks or isinstance(message, Init | Result)):
            self._waiting.cancel()
            self._waiting = None
        if self._waiting is None:
            self.check(just_ended=had_tasks > 0 and not self._progress.tasks)

    def check(self, just_ended: bool = False) -> None:
        if self._done or not self._progress.is_answered:
            return
        if self._has_callbacks and (self._progress.tasks or just_ended):
            seconds = NOTICE_SECONDS if just_ended else BACKGROUND_SECONDS
            self._waiting = start(lambda: self._end_after(seconds))
            return
        self._done = True
        self._waiting = start(lambda: self._end_after(0.0))

    async def _end_after(self, seconds: float) -> None:
        from anyio import sleep

        if seconds:
            await sleep(seconds)
        self._done = True
        await self._wire.end_input()
