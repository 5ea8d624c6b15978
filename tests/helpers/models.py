"""How the tests of the models ask: one request, a bounded wait, the events of the answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.protocol.base import Json

T = TypeVar("T")


def asking(*messages: Json, **fields: Any) -> ModelRequest:
    """A request with these messages."""
    return ModelRequest(**{"model": "m", "system": [], "max_tokens": 100, "messages": list(messages), **fields})


def user(content: str | list[Json]) -> Json:
    return {"role": "user", "content": content}


def assistant(*content: Json) -> Json:
    return {"role": "assistant", "content": list(content)}


def text(text: str) -> Json:
    return {"type": "text", "text": text}


def counting(prefix: str = "") -> Callable[[], str]:
    """Ids that anybody can foresee: 1, 2, 3."""
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers)}"


async def heard(model: Model, request: ModelRequest) -> list[ModelEvent]:
    """All events of an answer."""
    return [event async for event in model.stream(request)]


async def refusal(model: Model, request: ModelRequest) -> dict[str, Any]:
    """The fields of the error an answer ends with."""
    try:
        await heard(model, request)
    except ModelError as exc:
        return vars(exc)
    raise AssertionError("the model answered")


def problem(message: str, **fields: Any) -> dict[str, Any]:
    """The fields of an error that is expected."""
    return vars(ModelError(message, **fields))
