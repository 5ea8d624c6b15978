"""The turn of an earlier engine that has no result: which prompts it has, and how far it came.

    find_interrupted_turn(entries)    the turn; None if the last one has its result

With CLAUDE_CODE_RESUME_INTERRUPTED_TURN a resumed session continues it. A call that had started gets a result that says
what is known of it, and the model is asked again. If its answer was complete, only the result is missing. A turn that
ends one engine after the other is given up:

    continued   {}    journalled each time that an engine continues the turn
"""

from __future__ import annotations

from collections.abc import Iterable

from parley.engine.context.history import is_prompt
from parley.protocol.base import Json, Struct
from parley.stores.base import FOREIGN, USAGE, Entry

CONTINUE = "The engine exited during your answer. Continue from where it ends."
SILENT = "silent"
"""Context key of a prompt that starts no turn."""
CONTINUED = "continued"
MOST_CONTINUED = 10
"""How often a turn is continued that makes no progress."""
GIVEN_UP = f"The engine was interrupted {MOST_CONTINUED} times during this turn; it is not continued again."
FINAL = ("end_turn", "stop_sequence")
"""Why a model stops that has nothing more to say."""


class InterruptedTurn(Struct):
    prompts: list[str]
    """The ids of its prompts."""
    answer: str = ""
    """The id of the last answer; empty if the last message is not an answer."""
    text: str = ""
    """The last text of that answer."""
    stop_reason: str | None = None
    """Why the model stopped; None if the answer is not complete."""
    has_calls: bool = False
    continued: int = 0
    """How often it was continued since the last message."""

    @property
    def is_answered(self) -> bool:
        """Whether only its result is missing."""
        return self.stop_reason in FINAL and not self.has_calls


def find_interrupted_turn(entries: Iterable[Entry]) -> InterruptedTurn | None:
    """The last turn, if it has no result."""
    turn: InterruptedTurn | None = None
    for entry in entries:
        if entry.kind in ("result", "conversation_reset", "cut"):
            turn = None
        elif entry.kind == "user" and not entry.context.get(SILENT):
            turn = add_user(turn, entry)
        elif entry.kind == "assistant" and turn is not None:
            # Other engines write no results, so their turns end with an answer.
            turn = None if is_foreign_end(entry) else add_answer(turn, entry)
        elif entry.kind == CONTINUED and turn is not None:
            turn.continued += 1
        elif entry.kind == USAGE and turn is not None and entry.message.get("id") == turn.answer:
            turn.stop_reason = entry.message.get("stop_reason")
    return turn


def add_user(turn: InterruptedTurn | None, entry: Entry) -> InterruptedTurn | None:
    """The turn after a prompt, or after results of its calls."""
    if not is_prompt(entry, content_blocks(entry)):
        if turn is not None:
            turn.answer, turn.text, turn.stop_reason, turn.has_calls = "", "", None, False
            turn.continued = turn.continued if entry.message.get("isSynthetic") else 0
        return turn
    listed = entry.message.get("user_message_uuids")
    uuids = listed if isinstance(listed, list) else [entry.message.get("uuid")]
    return InterruptedTurn([*(turn.prompts if turn is not None else ()), *map(str, uuids)])


def add_answer(turn: InterruptedTurn, entry: Entry) -> InterruptedTurn:
    """The turn after a block of an answer."""
    blocks, answer = content_blocks(entry), str(entry.message["message"].get("id") or "")
    if answer != turn.answer:
        turn.answer, turn.text, turn.has_calls = answer, "", False
    turn.stop_reason, turn.continued = None, 0
    turn.has_calls = turn.has_calls or any(block.get("type") == "tool_use" for block in blocks)
    turn.text = next((str(block["text"]) for block in reversed(blocks) if block.get("type") == "text"), turn.text)
    return turn


def is_foreign_end(entry: Entry) -> bool:
    return bool(entry.context.get(FOREIGN)) and entry.message["message"].get("stop_reason") in FINAL


def content_blocks(entry: Entry) -> list[Json]:
    content = entry.message["message"]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
