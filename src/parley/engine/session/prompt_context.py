"""Instructions and environment variables that a client sends along with a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from parley.engine.context.conversation import Conversation
from parley.engine.context.system_prompt import render
from parley.errors import SessionError
from parley.protocol.base import Json
from parley.protocol.messages.dialects import Provisions, SystemFault

OPENING, CLOSING = "<pasted_content>\n", "\n</pasted_content>"
MAX_PARTS = 1000
"""Entries and blocks of `pasted_content`; a longer list is ignored."""
MAX_INLINE = 100


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


def add_pastes(content: list[Json], pasted: Any, inline: Any, warn: Callable[[str], None]) -> list[Json]:
    """The content of a prompt with its pasted texts."""
    marked = mark_inline(content, inline if isinstance(inline, list) else [])
    return [*marked, *appended_texts(pasted if isinstance(pasted, list) else [], warn)]


def appended_texts(pasted: list[Any], warn: Callable[[str], None]) -> list[Json]:
    parts = sum(1 + (len(entry) if isinstance(entry, list) else 0) for entry in pasted)
    if parts > MAX_PARTS:
        warn(
            f"pasted_content of a prompt is ignored: it has {parts} entries and blocks; at most {MAX_PARTS} are allowed"
        )
        return []
    texts = ["\n".join(texts_of(entry)) for entry in pasted]
    return [{"type": "text", "text": f"{OPENING}{text}{CLOSING}"} for text in texts if text.strip()]


def texts_of(entry: Any) -> list[str]:
    """The texts of an entry: a text, or content blocks. Other blocks are ignored."""
    if isinstance(entry, str):
        return [entry]
    blocks = entry if isinstance(entry, list) else []
    found = (block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text")
    return [text for text in found if isinstance(text, str)]


def mark_inline(content: list[Json], inline: list[Any]) -> list[Json]:
    """Mark texts where they stand in the last text block, each once and from left to right."""
    last = next((at for at in reversed(range(len(content))) if content[at].get("type") == "text"), None)
    pastes = [paste for paste in inline if isinstance(paste, str) and paste.strip()][:MAX_INLINE]
    if last is None or not pastes:
        return content
    text, done = str(content[last]["text"]), ""
    for paste in pastes:
        before, found, after = text.partition(paste)
        if found:
            done, text = f"{done}{before}{OPENING}{paste}{CLOSING}", after
    return [*content[:last], {**content[last], "text": done + text}, *content[last + 1 :]]
