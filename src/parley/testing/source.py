"""What a model server plays: a script, a tape, or the offline model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from parley.errors import ModelError
from parley.models.base import Event, Model, ModelRequest
from parley.models.fake.offline import Offline
from parley.models.fake.script import Player, Script
from parley.models.fake.scripted import play
from parley.models.faults.catalog import Fault, read_fault
from parley.models.recording.replay import Replay

Answer = tuple[AsyncGenerator[Event, None], Fault | None]
"""The events of an answer, and what shall go wrong with them on their way."""


class Source(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """The models that the server lists; it answers to any name."""

    def answer(self, request: ModelRequest) -> Answer:
        """Raises ModelError."""


class FromScript:
    names = ("scripted",)

    def __init__(self, script: Script, new_id: Callable[[], str]) -> None:
        self._player = Player(script)
        self._new_id = new_id

    def answer(self, request: ModelRequest) -> Answer:
        try:
            turn = self._player.turn_for(request)
        except ModelError as over:
            # A status tells every client that it need not try again.
            raise ModelError(over.message, status=400, kind="invalid_request_error") from None
        return play(turn, request, self._new_id), None if turn.fault is None else read_fault(turn.fault)


class FromModel:
    """A model that answers in this process."""

    def __init__(self, model: Model, *names: str) -> None:
        self.names = names
        self._model = model

    def answer(self, request: ModelRequest) -> Answer:
        return self._told(request), None

    async def _told(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    yield event
        except ModelError as flaw:
            if flaw.status is not None or flaw.retryable:
                raise
            # A tape and a conversation that part ways: the client must hear of it, and not try again.
            raise ModelError(flaw.message, status=400, kind="invalid_request_error") from None


def source_of(source: Script | Source, new_id: Callable[[], str]) -> Source:
    return FromScript(source, new_id) if isinstance(source, Script) else source


def from_tape(path: Path, *, pace: float = 0, in_order: bool = False) -> Source:
    """Raises UsageError."""
    return FromModel(Replay(path, pace=pace, in_order=in_order), "replay")


def offline(new_id: Callable[[], str]) -> Source:
    return FromModel(Offline(new_id), "offline")
