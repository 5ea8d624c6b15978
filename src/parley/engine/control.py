"""Answering the host's control requests: each exactly once, whatever runs meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parley.engine.answers import ANSWERERS, NotPossible
from parley.protocol.base import UNSET, Json, plain
from parley.protocol.messages import requests as ask
from parley.protocol.messages.control import ControlRequest, ControlResponse, Failure, RequestId, Success

if TYPE_CHECKING:
    from parley.engine.session import Session


class Control:
    def __init__(self, session: Session) -> None:
        self._session = session

    def take(self, message: ControlRequest) -> None:
        session, request = self._session, message.request
        handler = ANSWERERS.get(type(request))
        if handler is None:
            text = f"Unsupported control request subtype: {request.subtype}"
            self.refuse(message.request_id, text, "unsupported_request")
            return
        try:
            answer = handler(session, request)
        except NotPossible as flaw:
            self.refuse(message.request_id, str(flaw), flaw.code)
            return
        self._answer(message.request_id, answer)
        if isinstance(request, ask.Interrupt):
            session.abort()
        elif isinstance(request, ask.EndSession):
            session.finish()

    def _answer(self, request_id: RequestId, answer: Any) -> None:
        more: Json = {"pending_permission_requests": []} if isinstance(answer, ask.InitializeAnswer) else {}
        payload = UNSET if answer is None else plain(answer)
        self._session.host.tell(ControlResponse(response=Success(request_id=request_id, response=payload, **more)))

    def refuse(self, request_id: RequestId, text: str, code: str) -> None:
        self._session.host.tell(ControlResponse(response=Failure(request_id=request_id, error=text, error_code=code)))
