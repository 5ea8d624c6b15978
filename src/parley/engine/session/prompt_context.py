"""What a prompt brings along for the session: instructions, and variables for the commands that tools run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.system_prompt import render
from parley.errors import SessionError
from parley.protocol.messages.dialects import Provisions, SystemFault

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def furnish(session: Session, brought: Provisions) -> None:
    """They count from now on, also for a turn that runs."""
    if isinstance(brought.environment, dict):
        fit = {name: value for name, value in brought.environment.items() if is_variable(name, value)}
        session.setup.tool_context.environment.update(fit)
        if unfit := [name for name in brought.environment if name not in fit]:
            told = f"environment: no variables, and left out: {', '.join(map(repr, unfit))}"
            session.tell(SystemFault(message=told, error={"type": "validation_error", "message": told}))
    if isinstance(brought.system_prompt, str):
        instruct(session, brought.system_prompt)


def is_variable(name: str, value: str) -> bool:
    """Whether a process can be given it."""
    return bool(name) and "=" not in name and "\0" not in name + value


def instruct(session: Session, text: str) -> None:
    """Give the model other instructions. They are rendered anew, and in the log, only if they differ."""
    talk, record = session.conversation, session.record
    talk.instructions = msgspec.structs.replace(talk.instructions, replaced=text)
    whole = render(talk.instructions)
    if record.system_text in (None, whole):
        return  # not rendered yet, or nothing new
    try:
        record.note("prompt", {"text": whole})
    except SessionError as flaw:
        session.setup.complain(str(flaw))
