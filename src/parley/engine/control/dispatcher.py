"""Answering the host's control requests: each exactly once, whatever runs meanwhile.

Most answers are there at once. One that takes its time is awaited in a task of its own,
and the reader goes on:

    a change of files   in the order they were asked for, and no turn begins before it is done
    anything else       as soon as it is done

Not here: the answers themselves (control/handlers/session.py).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Coroutine
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from parley.engine.control.handlers.session import ANSWERERS
from parley.engine.session.prompt_queue import Rejected
from parley.errors import ModelError, NotPossible, SessionError, ToolError
from parley.protocol.base import UNSET, Json, Refused, plain
from parley.protocol.messages import requests as ask
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Failure,
    RequestId,
    Success,
)
from parley.protocol.messages.dialects import SystemFault

if TYPE_CHECKING:
    from parley.engine.session.session import Session

PENDING: dict[str, type[ask.Request]] = {
    "pending_permission_requests": ask.CanUseTool,
    "pending_user_dialog_requests": ask.RequestUserDialog,
    "pending_elicitation_requests": ask.Elicitation,
}
"""Where the answer to `initialize` lists which open questions of ours."""
CONNECTING = (ask.McpSetServers, ask.McpReconnect, ask.McpToggle)
"""What waits for servers. At the end nobody will call them: an answer that is as good as there is still told."""
CONNECTING_SECONDS = 3.0


class Control:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._slow: dict[RequestId, asyncio.Task[None]] = {}
        """Requests whose answers take their time."""
        self._changing: set[asyncio.Task[None]] = set()
        """Those of them that change files."""
        self._connecting: set[asyncio.Task[None]] = set()
        """Those of them that wait for servers."""
        self._one_by_one = asyncio.Lock()

    def take(self, message: ControlRequest) -> None:
        session, request = self._session, message.request
        handler = ANSWERERS.get(type(request))
        if handler is None:
            text = f"Unsupported control request subtype: {request.subtype}"
            self.refuse(message.request_id, text, "unsupported_request")
            return
        try:
            answer = handler(session, request)
        except Exception as flaw:
            self._fail(message.request_id, flaw)
            return
        if isinstance(answer, Awaitable):
            self._await(message, answer)
            return
        self._answer(message.request_id, answer)
        if isinstance(request, ask.Interrupt):
            session.abort()
        elif isinstance(request, ask.EndSession):
            session.finish()

    def turn_away(self, refused: Refused) -> None:
        """A line we cannot take: answered where somebody waits, else complained about."""
        session = self._session
        session.setup.complain(f"a line from the host was refused: {refused.reason}")
        if refused.request_id is not None:
            self.refuse(refused.request_id, refused.reason, "invalid_request")
        elif refused.kind == "user":
            session.inbox.put(Rejected(refused.reason, refused.uuid))
        else:
            error = {"type": "validation_error", "message": refused.reason}
            session.tell(SystemFault(message=refused.reason, error=error))

    def withdraw(self, message: ControlCancelRequest) -> None:
        """The host no longer wants to know. A change that has begun is finished all the same."""
        task = self._slow.get(message.request_id)
        if task is not None and task not in self._changing:
            task.cancel()

    # Answers that take their time.

    @property
    def is_changing(self) -> bool:
        """Whether files are being changed at the host's wish."""
        return bool(self._changing)

    async def settled(self) -> None:
        """Wait until no file is changed any more at the host's wish."""
        while self._changing:
            await asyncio.wait(self._changing)

    async def close(self) -> None:
        """Wait for the answers that are still owed. If we are cancelled, nobody waits for them."""
        try:
            if self._connecting:
                await asyncio.wait(self._connecting, timeout=CONNECTING_SECONDS)
            for task in self._connecting:
                task.cancel()
            while self._slow:
                await asyncio.wait(self._slow.values())
        finally:
            self.drop()

    def drop(self) -> None:
        """Give up what nobody will wait for. Changes of files are finished."""
        for task in self._slow.values():
            if task not in self._changing:
                task.cancel()

    def _await(self, message: ControlRequest, answer: Awaitable[Any]) -> None:
        changes = isinstance(message.request, ask.RewindFiles)
        task = asyncio.create_task(self._finish(message.request_id, answer, changes))
        self._slow[message.request_id] = task
        if changes:
            self._changing.add(task)
        if isinstance(message.request, CONNECTING):
            self._connecting.add(task)
        task.add_done_callback(lambda task: self._over(message.request_id, answer, task))

    async def _finish(self, request_id: RequestId, answer: Awaitable[Any], changes: bool) -> None:
        try:
            async with self._one_by_one if changes else nullcontext():
                found = await answer
            self._answer(request_id, found)
        except Exception as flaw:
            self._fail(request_id, flaw)

    def _over(self, request_id: RequestId, answer: Awaitable[Any], task: asyncio.Task[None]) -> None:
        del self._slow[request_id]
        self._connecting.discard(task)
        if task in self._changing:
            self._changing.remove(task)
            if not self._session.is_running and not self._changing:
                self._session.prompts.keep_silent()
        if task.cancelled():
            if isinstance(answer, Coroutine):
                answer.close()  # it may not even have begun
            self.refuse(request_id, "The session ended before the answer was there.", "cancelled")

    # Answers.

    def _answer(self, request_id: RequestId, answer: Any) -> None:
        more = self._open_questions() if isinstance(answer, ask.InitializeAnswer) else {}
        payload = UNSET if answer is None else plain(answer)
        self._session.host.tell(ControlResponse(response=Success(request_id=request_id, response=payload, **more)))
        if isinstance(answer, ask.InitializeAnswer):
            self._session.unfinished.offer()
            self._session.servers.start()  # never before: the handshake waits for nobody

    def _open_questions(self) -> dict[str, list[Json]]:
        """What we have asked and nobody has answered, so that a client that comes back can."""
        asked = self._session.host.pending()
        return {
            field: [plain(question) for question in asked if isinstance(question.request, kind)]
            for field, kind in PENDING.items()
        }

    def refuse(self, request_id: RequestId, text: str, code: str) -> None:
        self._session.host.tell(ControlResponse(response=Failure(request_id=request_id, error=text, error_code=code)))

    def _fail(self, request_id: RequestId, flaw: Exception) -> None:
        if isinstance(flaw, NotPossible):
            self.refuse(request_id, str(flaw), flaw.code)
        elif isinstance(flaw, ModelError | SessionError | ToolError):
            self.refuse(request_id, str(flaw), "failed")
        else:
            # A fault of ours costs this answer, not the session.
            self._session.setup.complain("".join(traceback.format_exception(flaw)))
            self.refuse(request_id, f"internal error: {type(flaw).__name__}: {flaw}", "internal_error")
