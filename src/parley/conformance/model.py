"""The model behind an engine under test: it plays the turns of a scenario over the Messages API, on loopback.

Turns with `when` answer the first request whose last user text contains it; the others are played in order. A probe
with one token takes no turn, and after the last turn the model says "Done.", so that no scenario hangs on it.
"""

from __future__ import annotations

from uuid import uuid4

from parley.models.base import ModelRequest
from parley.models.script import Script, ScriptedCall, ScriptedError, ScriptedTurn, ScriptPlayer, play
from parley.protocol.base import Json
from parley.testing.source import SourceAnswer

MODEL = "claude-sonnet-4-5"
"""A name with a price that engines know."""
END = ScriptedTurn(text="Done.")


class ScenarioModel:
    """Plays the turns that a scenario set last."""

    names = (MODEL,)

    def __init__(self) -> None:
        self._player = ScriptPlayer(Script())
        self._failure: ScriptedTurn | None = None

    def play(self, *turns: ScriptedTurn) -> None:
        self._player = ScriptPlayer(Script([*turns, *[END] * 20]))
        self._failure = None

    def fail(self, status: int, kind: str, message: str) -> None:
        """Answer every request with an error."""
        self._failure = ScriptedTurn(error=ScriptedError(status=status, type=kind, message=message))

    def answer(self, request: ModelRequest) -> SourceAnswer:
        turn = self._failure or (END if request.max_tokens == 1 else self._player.turn_for(request))
        return play(turn, request, lambda: uuid4().hex[:24]), None


def say(text: str, **turn: object) -> ScriptedTurn:
    """The model answers with a text."""
    return ScriptedTurn(text=text, **turn)  # type: ignore[arg-type]


def use(name: str, input: Json, id: str, **turn: object) -> ScriptedTurn:
    """The model calls a tool."""
    return ScriptedTurn(tools=[ScriptedCall(name=name, input=input, id=id)], **turn)  # type: ignore[arg-type]


def bash(command: str, id: str = "toolu_bash", **input: object) -> ScriptedTurn:
    return use("Bash", {"command": command, "description": "Run it", **input}, id)
