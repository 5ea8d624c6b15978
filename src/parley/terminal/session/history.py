"""The past of a session that is resumed: its messages, from the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from parley.protocol.base import Message, Refused, decode, encode_json
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import User
from parley.terminal.rendering.transcript import INTERRUPTED

SHOWN_MESSAGES = 40
"""How many messages of a resumed session are shown."""


@dataclass
class Past:
    """What is known of the messages before this terminal was opened."""

    uuids: list[str] = field(default_factory=list)
    """The ids of all messages, oldest first."""
    prompts: list[tuple[str, str]] = field(default_factory=list)
    """Id and text of each prompt."""
    shown: list[Message] = field(default_factory=list)
    """The last messages."""
    hidden: int = 0
    """How many messages are not shown."""


def read_past(session_id: str, store: str | None) -> Past:
    """Read a stored session; it is empty if there is none. Slow for a long one."""
    from parley.sdk.sessions import get_session_messages

    past = Past()
    messages = get_session_messages(session_id, store=store)
    for index, one in enumerate(messages):
        past.uuids.append(one.uuid)
        is_shown = index >= len(messages) - SHOWN_MESSAGES
        if one.type != "user" and not is_shown:
            continue
        line = {"type": one.type, "message": one.message, "uuid": one.uuid, "session_id": one.session_id}
        found = decode(encode_json({**line, "parent_tool_use_id": one.parent_tool_use_id}))
        if isinstance(found, Refused):
            continue
        if isinstance(found, User) and (text := prompt_text(found)) is not None:
            past.prompts.append((one.uuid, text))
        if is_shown:
            past.shown.append(found)
    past.hidden = len(messages) - len(past.shown)
    return past


def prompt_text(message: User) -> str | None:
    """The text of a prompt; None for tool results and messages that the engine made."""
    content = message.message.content
    if message.isSynthetic is True or isinstance(message.parent_tool_use_id, str):
        return None
    texts = [content] if isinstance(content, str) else [block.text for block in content if isinstance(block, Text)]
    text = "\n".join(texts)
    return text if text.strip() and not text.startswith(INTERRUPTED) else None
