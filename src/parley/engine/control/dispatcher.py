"""Answers control requests of the client: each exactly once, also while a turn runs.

A request is answered by the function with the name of its subtype, in the module of its area. It takes the session and
the request, and returns the payload of the success reply, or raises NotPossible. The module is imported with its first
request. Most handlers answer at once. A slow one is a coroutine function and runs in a task of its own, so the reader
never waits. One whose progress the client sees returns a function, which gets one that reports an `ApiRetry`:

    changes of files    one after the other, in order; no turn starts before they are done
    anything else       answered as soon as it is done
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from parley.engine.session.prompts import RejectedPrompt
from parley.errors import ModelError, NotPossible, SessionError, ToolError
from parley.protocol.base import UNSET, Json, Refused, to_builtins
from parley.protocol.messages import requests
from parley.protocol.messages.control import (
    ControlCancelRequest,
    ControlRequest,
    ControlResponse,
    Failure,
    RequestId,
    Success,
)
from parley.protocol.messages.dialects import SystemFault
from parley.protocol.messages.requests import find_request
from parley.protocol.messages.system import ApiRetry

if TYPE_CHECKING:
    from parley.engine.session.session import Session


PENDING: dict[str, type[requests.Request]] = {
    "pending_permission_requests": requests.CanUseTool,
    "pending_user_dialog_requests": requests.RequestUserDialog,
    "pending_elicitation_requests": requests.Elicitation,
}
"""The fields of the answer to `initialize` that list open requests of the engine."""
CHANGING = ("rewind_files", "set_model", "update_settings")
"""Requests that change files or the model. No turn starts before they are done."""
CONNECTING = ("mcp_set_servers", "mcp_reconnect", "mcp_toggle")
"""Requests that wait for servers. At the end of the session they get a few seconds to finish."""
CONNECTING_SECONDS = 3.0


class ControlDispatcher:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.has_refused = False
        """Whether a line was refused that is neither a prompt nor a request."""
        self._slow: dict[RequestId, asyncio.Task[None]] = {}
        """The tasks of slow requests."""
        self._changing: set[asyncio.Task[None]] = set()
        """Those that change files."""
        self._connecting: set[asyncio.Task[None]] = set()
        """Those that wait for servers."""
        self._lock = asyncio.Lock()

    def receive(self, message: ControlRequest) -> None:
        session, request = self._session, message.request
        handler = find_handler(request.subtype)
        if handler is None:
            self.refuse(message.request_id, explain_refusal(request.subtype), "unsupported_request")
            return
        try:
            answer = handler(session, request)
        except Exception as exc:
            self._fail(message.request_id, exc)
            return
        if callable(answer):
            self._send_progress(message.request_id, status="started")
            answer = answer(lambda retry: self._report_retry(message.request_id, retry))
        if isinstance(answer, Awaitable):
            self._await(message, answer)
            return
        self._send_answer(message.request_id, answer)
        if isinstance(request, requests.Interrupt):
            session.interrupt()
        elif isinstance(request, requests.EndSession):
            session.close_input()

    def reject(self, refused: Refused) -> None:
        """Report a message that cannot be read: as an error reply, a failed result, or a fault."""
        session = self._session
        session.config.warn(f"a line from the client was refused: {refused.reason}")
        if refused.request_id is not None:
            self.refuse(refused.request_id, refused.reason, "invalid_request")
        elif refused.kind == "user":
            session.prompt_queue.put(RejectedPrompt(refused.reason, refused.uuid))
        else:
            self.has_refused = True
            error = {"type": "validation_error", "message": refused.reason}
            session.outbox.send(SystemFault(message=refused.reason, error=error))

    def cancel(self, message: ControlCancelRequest) -> None:
        """Cancel a slow request. A change of files is finished nevertheless."""
        task = self._slow.get(message.request_id)
        if task is not None and task not in self._changing:
            task.cancel()

    # Slow requests.

    @property
    def is_changing(self) -> bool:
        """Whether a request is changing files."""
        return bool(self._changing)

    async def wait_changes(self) -> None:
        """Wait until no request is changing files."""
        while self._changing:
            await asyncio.wait(self._changing)

    async def close(self) -> None:
        """Finish the slow requests. If this task is cancelled, cancel them."""
        try:
            if self._connecting:
                await asyncio.wait(self._connecting, timeout=CONNECTING_SECONDS)
            for task in self._connecting:
                task.cancel()
            while self._slow:
                await asyncio.wait(self._slow.values())
        finally:
            self.cancel_pending()

    def cancel_pending(self) -> None:
        """Cancel the slow requests, except changes of files."""
        for task in self._slow.values():
            if task not in self._changing:
                task.cancel()

    def _await(self, message: ControlRequest, answer: Awaitable[Any]) -> None:
        changes = message.request.subtype in CHANGING
        task = asyncio.create_task(self._finish(message.request_id, answer, changes))
        self._slow[message.request_id] = task
        if changes:
            self._changing.add(task)
        if message.request.subtype in CONNECTING:
            self._connecting.add(task)
        task.add_done_callback(lambda task: self._on_done(message.request_id, answer, task))

    async def _finish(self, request_id: RequestId, answer: Awaitable[Any], changes: bool) -> None:
        try:
            async with self._lock if changes else nullcontext():
                found = await answer
            self._send_answer(request_id, found)
        except Exception as exc:
            self._fail(request_id, exc)

    def _on_done(self, request_id: RequestId, answer: Awaitable[Any], task: asyncio.Task[None]) -> None:
        del self._slow[request_id]
        self._connecting.discard(task)
        if task in self._changing:
            self._changing.remove(task)
            if not self._session.is_running and not self._changing:
                self._session.append_silent()
        if task.cancelled():
            if isinstance(answer, Coroutine):
                answer.close()  # it may not have started
            self.refuse(request_id, "The session ended before the answer was ready.", "cancelled")

    # Progress.

    def _report_retry(self, request_id: RequestId, retry: ApiRetry) -> None:
        self._send_progress(
            request_id,
            status="api_retry",
            attempt=retry.attempt,
            max_retries=retry.max_retries,
            retry_delay_ms=retry.retry_delay_ms,
            error_status=retry.error_status,
        )

    def _send_progress(self, request_id: RequestId, **fields: Any) -> None:
        from parley.protocol.messages.occasional import ControlRequestProgress

        self._session.outbox.send(ControlRequestProgress(request_id=str(request_id), **fields))

    # Answers.

    def _send_answer(self, request_id: RequestId, answer: Any) -> None:
        more = self._pending_requests() if isinstance(answer, requests.InitializeAnswer) else {}
        payload = UNSET if answer is None else to_builtins(answer)
        self._session.outbox.send_raw(
            ControlResponse(response=Success(request_id=request_id, response=payload, **more))
        )
        if isinstance(answer, requests.InitializeAnswer):
            self._session.resume_turn()
            self._session.servers.start()  # not earlier: the handshake does not wait for servers

    def _pending_requests(self) -> dict[str, list[Json]]:
        """The open requests of the engine, so that a reconnected client can answer them."""
        asked = self._session.outbox.host.pending_requests()
        return {
            field: [to_builtins(question) for question in asked if isinstance(question.request, kind)]
            for field, kind in PENDING.items()
        }

    def refuse(self, request_id: RequestId, text: str, code: str) -> None:
        self._session.outbox.send_raw(
            ControlResponse(response=Failure(request_id=request_id, error=text, error_code=code))
        )

    def _fail(self, request_id: RequestId, error: Exception) -> None:
        if isinstance(error, NotPossible):
            self.refuse(request_id, str(error), error.code)
        elif isinstance(error, ModelError | SessionError | ToolError):
            self.refuse(request_id, str(error), "failed")
        else:
            # A bug of ours fails this request, not the session.
            self._session.config.warn("".join(traceback.format_exception(error)))
            self.refuse(request_id, f"internal error: {type(error).__name__}: {error}", "internal_error")


LOGIN = "Parley has no login of its own: set ANTHROPIC_API_KEY, apiKeyHelper or the key of another backend"
FEEDBACK = "feedback goes to a service of the vendor; Parley does not send any"
CHROME = "the browser extension belongs to the vendor; connect a browser through an MCP server instead"
NOT_OURS: dict[str, str] = {
    "remote_control": "remote control runs through servers of the vendor",
    "channel_enable": "channels run through servers of the vendor",
    "claude_authenticate": LOGIN,
    "claude_oauth_callback": LOGIN,
    "claude_oauth_wait_for_completion": LOGIN,
    "submit_feedback": FEEDBACK,
    "submit_survey_feedback": FEEDBACK,
    "message_rated": FEEDBACK,
    "ultrareview_launch": "the review runs on servers of the vendor",
    "set_chrome_browser_hints": CHROME,
    "get_chrome_dialog": CHROME,
    "get_chrome_browsers": CHROME,
    "select_chrome_browser": CHROME,
}
"""Why requests that need a service of the vendor are refused."""


def asks_a_model(subtype: str) -> bool:
    """Whether a request may cost money: the handlers of all that do are in one module."""
    found = find_request(subtype)
    return found is not None and found.area == "side"


def explain_refusal(subtype: str) -> str:
    """Why no handler exists for a request."""
    reason = NOT_OURS.get(subtype)
    if reason is None:
        return f"Unsupported control request subtype: {subtype}"
    return f"{subtype} is not available: {reason}"


def find_handler(subtype: str) -> Callable[[Any, Any], Any] | None:
    """The handler of a request; None if the request is not supported."""
    found = find_request(subtype)
    if found is None or not found.area:
        return None
    module = import_module(f"parley.engine.control.{found.area}")
    handler: Callable[[Any, Any], Any] = getattr(module, subtype)
    return handler
