"""`openai-responses:NAME`: any server with the Responses API, streamed.

The request (responses_request.py) and the stream (responses_stream.py) are converted, so that the engine sees the
Messages API. Reasoning items go back to the model that made them (reasoning_items.py). Address, key and errors are
those of `openai:NAME`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from parley.errors import ModelError
from parley.models.backends.openai import AnswerStream, OpenAI, collect_ids
from parley.models.backends.responses_request import build_body, optional_fields
from parley.models.backends.responses_stream import ResponsesStream
from parley.models.base import ModelRequest
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json

BREAKS = ("connection_failed", "timeout_error")


class OpenAIResponses(OpenAI):
    """One model on one server with the Responses API."""

    service: ClassVar[str] = "openai-responses"
    path: ClassVar[str] = "/responses"

    def _build_body(self, request: ModelRequest, endpoint: ModelEndpoint) -> Json:
        return build_body(request, self._name, self._dropped.names)

    def _open_stream(self, request: ModelRequest, input_chars: int) -> AnswerStream:
        taken = collect_ids(request.messages)
        return ResponsesStream(model=self._name, new_id=self._new_id, taken=taken, input_chars=input_chars)

    def _optional_fields(self, fields: Json) -> Iterable[str]:
        return optional_fields(fields)

    def _locate(self, exc: ModelError, stream: AnswerStream) -> str:
        """A reader must know whether reasoning was lost, so an error says in which item the stream broke."""
        assert isinstance(stream, ResponsesStream)
        is_break = exc.kind in BREAKS and stream.has_started and "broke off" not in exc.message
        return f"{exc.message} (the stream broke off {stream.place})" if is_break else exc.message
