"""A session's way to its models: who is asked, and with what."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.engine.history import marked
from parley.engine.prompt import render, system_blocks
from parley.engine.thinking import thinking_field
from parley.models.base import Model, ModelRequest
from parley.models.names import PUPPETS, Choice, facts

if TYPE_CHECKING:
    from parley.engine.session import Session


class Access:
    """Models, each opened when it is first needed."""

    def __init__(self, open_model: Callable[[Choice], Model]) -> None:
        self._open = open_model
        self._opened: dict[Choice, Model] = {}

    def open(self, choice: Choice) -> Model:
        """Raises UsageError or ModelError."""
        if choice not in self._opened:
            self._opened[choice] = self._open(choice)
        return self._opened[choice]

    async def close(self) -> None:
        for model in self._opened.values():
            await model.close()


def next_request(session: Session) -> ModelRequest:
    """The next model call. Its beginning is the last one, byte for byte."""
    known = facts(session.model.name)
    max_tokens = session.limits.max_output_tokens or known.max_output_tokens
    return ModelRequest(
        model=session.model.name if session.model.adapter == "anthropic" else session.model.shown,
        system=system_blocks(system_prompt(session)),
        messages=marked(session.history.messages()),
        # Models that are no models need no schemas, and loading the tools takes its time.
        tools=session.setup.tools.schemas() if session.model.adapter not in PUPPETS else [],
        max_tokens=max_tokens,
        thinking=thinking_field(session.thinking, known, max_tokens),
        effort=session.setup.effort if known.takes_effort else None,
        betas=session.setup.betas,
        session_id=session.id,
    )


def system_prompt(session: Session) -> str:
    """Rendered once, then the same for the session's life."""
    record = session.record
    if record.system_text is None:
        record.note("prompt", {"text": render(session.instructions)})
    return record.system_text or ""
