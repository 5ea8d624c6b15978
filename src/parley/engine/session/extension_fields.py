"""Fields for editor extensions: the thinking level and the todo list of the model.

`--extension-fields` adds them to assistant messages as `thinkingMetadata` and `todos`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parley.protocol.base import Json

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation

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
