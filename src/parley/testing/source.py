"""What a model server plays: a script, a recording, or the offline model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from parley.errors import ModelError
from parley.models.base import Model, ModelEvent, ModelRequest
from parley.models.fakes import Offline
from parley.models.faults import Fault, read_fault
from parley.models.replay import Replay
from parley.models.script import Script, ScriptPlayer, play

SourceAnswer = tuple[AsyncGenerator[ModelEvent, None], Fault | None]
"""The events of an answer, and the fault to apply."""


class AnswerSource(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """The models that the server lists. It accepts any name."""

    def answer(self, request: ModelRequest) -> SourceAnswer:
        """Raises ModelError."""


class ScriptSource:
    names = ("scripted",)

    def __init__(self, script: Script, new_id: Callable[[], str]) -> None:
        self._player = ScriptPlayer(script)
        self._new_id = new_id

    def answer(self, request: ModelRequest) -> SourceAnswer:
        try:
            turn = self._player.turn_for(request)
        except ModelError as exc:
            # With a status, clients do not retry.
            raise ModelError(exc.message, status=400, kind="invalid_request_error") from None
        return play(turn, request, self._new_id), None if turn.fault is None else read_fault(turn.fault)


class ModelSource:
    """A model that answers in this process."""

    def __init__(self, model: Model, *names: str) -> None:
        self.names = names
        self._model = model

    def answer(self, request: ModelRequest) -> SourceAnswer:
        return self._stream(request), None

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    yield event
        except ModelError as exc:
            if exc.status is not None or exc.retryable:
                raise
            # The conversation differs from the recording. The client must receive the error and not retry.
            raise ModelError(exc.message, status=400, kind="invalid_request_error") from None


def to_source(source: Script | AnswerSource, new_id: Callable[[], str]) -> AnswerSource:
    return ScriptSource(source, new_id) if isinstance(source, Script) else source


def from_recording(path: Path, *, pace: float = 0, in_order: bool = False) -> AnswerSource:
    """Raises UsageError."""
    return ModelSource(Replay(path, pace=pace, in_order=in_order), "replay")


def offline(new_id: Callable[[], str]) -> AnswerSource:
    return ModelSource(Offline(new_id), "offline")
