"""`--model echo:NAME`: a model backend that answers with the last prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup
from parley.models.catalog import Backend
from parley.models.event_synthesis import message_json, synthesize_events


class Echo:
    def __init__(self, name: str, new_id: Callable[[], str]) -> None:
        self._name = name
        self._new_id = new_id

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        texts = [block["text"] for block in request.messages[-1]["content"] if block["type"] == "text"]
        message = message_json(
            [{"type": "text", "text": f"{self._name}: {texts[-1]}"}],
            id=f"msg_{self._new_id()}",
            model=request.model,
            usage={"input_tokens": 1, "output_tokens": 1},
        )
        for event in synthesize_events(message):
            yield event

    async def close(self) -> None:
        """There is nothing to release."""


def open_model(setup: ModelSetup, name: str) -> Model:
    return Echo(name, setup.new_id)


BACKEND = Backend(open=open_model, is_fake=True, about="echo:NAME repeats the prompt")
