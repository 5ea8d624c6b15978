"""What a prompt brings along for the session: instructions, and variables for the commands that tools run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.context.system_prompt import render
from parley.errors import SessionError
from parley.protocol.messages.dialects import Provisions, SystemFault

if TYPE_CHECKING:
    from parley.engine.session.session import Session


def apply_prompt_context(session: Session, provisions: Provisions) -> None:
    """They count from now on, also for a turn that runs."""
    if isinstance(provisions.environment, dict):
        fit = {name: value for name, value in provisions.environment.items() if is_environment_variable(name, value)}
        session.config.tool_context.environment.update(fit)
        if unfit := [name for name in provisions.environment if name not in fit]:
            told = f"environment: no variables, and left out: {', '.join(map(repr, unfit))}"
            session.send(SystemFault(message=told, error={"type": "validation_error", "message": told}))
    if isinstance(provisions.system_prompt, str):
        set_instructions(session, provisions.system_prompt)


def is_environment_variable(name: str, value: str) -> bool:
    """Whether a process can be given it."""
    return bool(name) and "=" not in name and "\0" not in name + value


def set_instructions(session: Session, text: str) -> None:
    """Give the model other instructions. They are rendered anew, and in the log, only if they differ."""
    conversation, record = session.conversation, session.journal
    conversation.instructions = msgspec.structs.replace(conversation.instructions, replaced=text)
    whole = render(conversation.instructions)
    if record.system_text in (None, whole):
        return  # not rendered yet, or nothing new
    try:
        record.append_event("prompt", {"text": whole})
    except SessionError as exc:
        session.config.warn(str(exc))
