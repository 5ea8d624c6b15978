"""What some clients send along with a prompt, or get with an answer.

A prompt can bring instructions and environment variables. `--extension-fields` adds the thinking level
and the todo list of the model to assistant messages, as `thinkingMetadata` and `todos`, for editor extensions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.context.system_prompt import render
from parley.errors import SessionError
from parley.protocol.base import Json
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


LEVELS = ((4_000, "low"), (10_000, "medium"))
"""Up to how many tokens of thought a level goes; above that it is high."""
TODOS = "TodoWrite"


def extension_fields(conversation: Conversation) -> dict[str, Any]:
    """The fields for an assistant line that is told now."""
    return {"thinkingMetadata": thinking_field(conversation), **todo_field(conversation.tool_context.state.notes)}


def thinking_field(conversation: Conversation) -> Json:
    options, choice = conversation.thinking, conversation.model
    never = not choice.is_fake and conversation.config.model.get_info(choice).thinking == "never"
    disabled = never or options.mode == "disabled" or options.budget_tokens == 0
    # There are no trigger words here.
    return {
        "level": "auto" if disabled else thinking_level(options.budget_tokens),
        "disabled": disabled,
        "triggers": [],
    }


def thinking_level(tokens: int | None) -> str:
    """The level of a budget; `auto` if the model decides."""
    if tokens is None:
        return "auto"
    return next((name for most, name in LEVELS if tokens <= most), "high")


def todo_field(notes: Json) -> dict[str, list[Json]]:
    """The todo list of the model, if it has one. The id of an item is its position."""
    if TODOS not in notes:
        return {}
    listed = enumerate(notes[TODOS], 1)
    return {
        "todos": [{"id": str(place), "content": todo["content"], "status": todo["status"]} for place, todo in listed]
    }
