"""What a prompt brings along for the session: instructions, and variables for the commands that tools run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from parley.engine.prompt import render
from parley.errors import SessionError
from parley.protocol.messages.dialects import Provisions

if TYPE_CHECKING:
    from parley.engine.session import Session


def furnish(session: Session, brought: Provisions) -> None:
    """They count from now on, also for a turn that runs."""
    if isinstance(brought.environment, dict):
        session.setup.tool_context.environment.update(brought.environment)
    if isinstance(brought.system_prompt, str):
        instruct(session, brought.system_prompt)


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
