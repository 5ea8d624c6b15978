"""`openai-responses:NAME`: any server with the Responses API, streamed.

The request (responses_request.py) and the stream (responses_stream.py) are converted, so that the engine sees the
Messages API. Reasoning items go back to the model that made them (reasoning_items.py). Address, key and errors are
those of `openai:NAME`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import ClassVar

from parley.errors import ModelError
from parley.models.backends import responses_request
from parley.models.backends.openai import AnswerStream, OpenAI
from parley.models.backends.responses_stream import ResponsesStream
from parley.models.base import ModelRequest
from parley.models.encoding import Convert
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import Json

BREAKS = ("connection_failed", "timeout_error")


class OpenAIResponses(OpenAI):
    """One model on one server with the Responses API."""

    service: ClassVar[str] = "openai-responses"
    path: ClassVar[str] = "/responses"
    conversation_field: ClassVar[str] = "input"

    def _build_fields(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Json:
        return responses_request.build_fields(request, self._name, dropped)

    def _make_convert(self, declared: Collection[str], dropped: Collection[str]) -> Convert:
        has_phase = "phase" not in dropped
        return partial(responses_request.convert_message, model=self._name, has_phase=has_phase)

    def _convert_tool(self, tool: Json) -> list[Json]:
        return responses_request.convert_tool(tool)

    def _opening(self, request: ModelRequest) -> list[Json]:
        return []

    def _open_stream(self, taken: Collection[str], input_chars: int) -> AnswerStream:
        return ResponsesStream(model=self._name, new_id=self._new_id, taken=taken, input_chars=input_chars)

    def _optional_fields(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterable[str]:
        body = responses_request.build_body(request, self._name, self._dropped.names)
        return responses_request.optional_fields({**body, **endpoint.extra_body})

    def _locate(self, exc: ModelError, stream: AnswerStream) -> str:
        """A reader must know whether reasoning was lost, so an error says in which item the stream broke."""
        assert isinstance(stream, ResponsesStream)
        is_break = exc.kind in BREAKS and stream.has_started and "broke off" not in exc.message
        return f"{exc.message} (the stream broke off {stream.place})" if is_break else exc.message
