"""`scripted:FILE`: a fake model that plays a script file. `script.py` describes the format.

`scripted:{"turn": [...]}` has the script itself, for an engine that cannot read the file: on a gateway.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from parley.errors import UsageError
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, find_model_file
from parley.models.fake.script import Script, ScriptPlayer, play, read_script
from parley.models.model_file import read_model_file

if TYPE_CHECKING:
    from parley.models.http.call import Deadlines


class Scripted:
    """Plays one script from start to end."""

    def __init__(
        self, script: Script | Path, new_id: Callable[[], str], deadlines: Callable[[], Deadlines] | None = None
    ) -> None:
        """The deadlines apply to turns with a fault. Raises UsageError."""
        self._player = ScriptPlayer(script if isinstance(script, Script) else load(script))
        self._new_id = new_id
        self._deadlines = deadlines

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        """Raises UsageError."""
        is_script = name.startswith("{")
        return cls(
            read_script(name, "in the name of the model")
            if is_script
            else find_model_file(setup.cwd, name, setup.environment),
            setup.new_id,
            setup.deadlines,
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        turn = self._player.turn_for(request)
        events = play(turn, request, self._new_id)
        if turn.fault is not None:
            from parley.models.faults.catalog import read_fault
            from parley.models.faults.model import apply_fault

            deadlines = self._deadlines() if self._deadlines is not None else None
            events = apply_fault(events, read_fault(turn.fault), deadlines)
        async with aclosing(events) as stream:
            async for event in stream:
                yield event

    async def close(self) -> None:
        pass


def load(path: Path) -> Script:
    """Raises UsageError."""
    try:
        return read_script(read_model_file(path).decode(), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read script {path}: {exc}") from None
