"""Answers that end a turn without saying or doing anything.

    empty           no text and no call; perhaps only reasoning
    unclear         a call as text that cannot be taken for one
    announced       "I will now read the file", and no call follows

Each is asked about once in a turn. If an answer is empty again, the turn fails. Any text is an answer, otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parley.models.catalog import claude_version
from parley.protocol.blocks import RedactedThinking, Thinking

if TYPE_CHECKING:
    from parley.engine.context.conversation import Conversation
    from parley.engine.turn.model_call import ModelCall

INVISIBLE = " \t\r\n\u200b\u2060\ufeff"
ASKED_BACK = ("end_turn", "tool_use", "max_tokens", None)
"""The stop reasons after which an answer without content is a mistake."""
EMPTY = "[Your answer was empty. Answer the user, or call a tool.]"
ONLY_REASONING = "[Your answer has reasoning only, which the user does not see. Answer the user, or call a tool.]"
UNCLEAR = "[Your answer contains a tool call as text, which did not run. If you want it to run, make it a tool call.]"
ANNOUNCED = "[Your answer announces a tool call, but makes none. Make the call now, or answer without it.]"
PROMISE = (
    r"(?i)\b(?:I'll|I will|I am going to|I'm going to|let me|let's)\s+"
    r"(?:(?:now|first|quickly|start by|begin by)\s+)*"
    r"(?:read|look|check|open|run|search|list|create|write|edit|examine|inspect|use|call|execute|fetch|find|view|start)"
    r"(?:ing)?\b[^!?]*$"
)
CONDITION = r"(?i)\b(?:if|once|when|after|unless|until|would|should|could|want|like|need|later|you)\b|\?"
"""A sentence with one of these words announces nothing for now."""
MAX_SENTENCE_CHARS = 300


class MissingAnswer:
    """Finds what is missing in the last answer of a turn."""

    def __init__(self, conversation: Conversation, model_call: ModelCall) -> None:
        self._conversation = conversation
        self._model_call = model_call
        self._asked: set[str] = set()

    def find_advice(self) -> str | None:
        """What to ask the model, the first time that something is missing."""
        found = self._find()
        if found is None or found in self._asked:
            return None
        self._asked.add(found)
        return found

    def describe_problem(self) -> str | None:
        """Why there is no answer; None if there is one."""
        if (found := self._find()) not in (EMPTY, ONLY_REASONING):
            return None
        model = self._conversation.model.display_name
        what = "was empty" if found == EMPTY else "contained only reasoning"
        if self._model_call.accumulator.stop_reason == "max_tokens":
            return f"The answer of {model} {what} when it reached the maximum number of output tokens"
        return f"The answer of {model} {what}, also when it was asked again"

    def _find(self) -> str | None:
        answer, text = self._model_call.accumulator, self._model_call.final_text().strip(INVISIBLE)
        if not text:
            if answer.stop_reason not in ASKED_BACK:
                return None
            has_thoughts = any(isinstance(block, Thinking | RedactedThinking) for block in answer.blocks)
            return ONLY_REASONING if has_thoughts else EMPTY
        if not self._conversation.tool_executor.tools:
            return None
        if self._model_call.repair.is_unclear:
            return UNCLEAR
        # The models of the vendor do not announce calls that they do not make.
        if claude_version(self._conversation.model.name) is not None:
            return None
        return ANNOUNCED if answer.stop_reason == "tool_use" or announces_call(text) else None


def announces_call(text: str) -> bool:
    """Whether the last sentence of a text says that the model is about to use a tool."""
    sentence = re.split(r"(?<=[.!?])\s+|\n", text)[-1].strip()
    is_short = len(sentence) <= MAX_SENTENCE_CHARS
    return is_short and re.search(PROMISE, sentence) is not None and re.search(CONDITION, sentence) is None
