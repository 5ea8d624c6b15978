"""Instructions and environment variables that a client sends along with a prompt."""

from __future__ import annotations

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.context.system_prompt import render
from parley.errors import SessionError
from parley.protocol.messages.dialects import Provisions, SystemFault


def apply_prompt_context(conversation: Conversation, provisions: Provisions) -> None:
    """They take effect at once, also for a running turn."""
    if isinstance(provisions.environment, dict):
        fit = {name: value for name, value in provisions.environment.items() if is_environment_variable(name, value)}
        conversation.config.workspace.environment.update(fit)
        if unfit := [name for name in provisions.environment if name not in fit]:
            text = f"environment: these variables are invalid and are ignored: {', '.join(map(repr, unfit))}"
            conversation.send(SystemFault(message=text, error={"type": "validation_error", "message": text}))
    if isinstance(provisions.system_prompt, str):
        set_instructions(conversation, provisions.system_prompt)


def is_environment_variable(name: str, value: str) -> bool:
    """Whether a process can have it in its environment."""
    return bool(name) and "=" not in name and "\0" not in name + value


def set_instructions(conversation: Conversation, text: str) -> None:
    """Replace the system prompt. It is rendered and journalled again only if it differs."""
    journal = conversation.journal
    conversation.instructions = msgspec.structs.replace(conversation.instructions, replaced=text)
    whole = render(conversation.instructions)
    if journal.system_text in (None, whole):
        return  # not rendered yet, or unchanged
    try:
        journal.append_event("prompt", {"text": whole})
    except SessionError as exc:
        conversation.config.warn(str(exc))
