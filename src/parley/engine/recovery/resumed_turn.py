"""The turn of an earlier engine that continues when the client is there.

It waits for a reply to a request, or it was interrupted anywhere (`interrupted_turn.py`), if the options say so.
"""

from __future__ import annotations

from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompts import PromptQueue, ResumedTurnItem
from parley.protocol.base import convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.dialects import AnswerComplete
from parley.stores.base import Entry


class ResumedTurn:
    def __init__(self, item: ResumedTurnItem, journal: Journal, prompt_queue: PromptQueue, outbox: Outbox) -> None:
        self._item: ResumedTurnItem | None = item
        self._journal = journal
        self._prompt_queue = prompt_queue
        self._outbox = outbox

    def enqueue(self) -> None:
        """Continue the turn before anything else. Only the first call counts."""
        item, self._item = self._item, None
        if item is not None:
            self._prompt_queue.put(item)

    def resend_client_calls(self, calls: list[ToolUse]) -> None:
        """Send the messages again that hand calls to the client: it may be another client now."""
        ids = [call.id for call in calls if call.id in self._journal.awaited_calls]
        if not ids:
            return
        messages = [entry.message for entry in self._journal.log.entries() if has_call(entry, ids)]
        for message in messages:
            self._outbox.send_raw(convert(message, Assistant))
        message_id = str(messages[-1]["message"].get("id")) if messages else ""
        self._outbox.send(AnswerComplete(message_id=message_id))


def find_resumed_turn(journal: Journal, *, continues: bool) -> ResumedTurnItem | None:
    """The turn that waits for a reply or, with `continues`, has no result."""
    calls = find_waiting_calls(journal)
    if not continues:
        return ResumedTurnItem(uuid=calls[0].id, calls=calls) if calls else None
    from parley.engine.recovery.interrupted_turn import MOST_CONTINUED, find_interrupted_turn

    turn = find_interrupted_turn(journal.log.entries())
    if turn is None:
        return ResumedTurnItem(uuid=calls[0].id, calls=calls) if calls else None
    answer = (turn.text, turn.stop_reason) if turn.is_answered else None
    is_given_up = turn.continued >= MOST_CONTINUED
    return ResumedTurnItem(
        uuid=turn.prompts[0], calls=calls, prompt_ids=turn.prompts, answer=answer, is_given_up=is_given_up
    )


def find_waiting_calls(journal: Journal) -> list[ToolUse]:
    """The open calls of the last turn; none if it does not wait for a reply."""
    undecided = [
        call
        for call in journal.history.open_tool_uses()
        if call["id"] not in journal.decided_calls or call["id"] in journal.awaited_calls
    ]
    waits = any(call["id"] in journal.questions or call["id"] in journal.deferred_calls for call in undecided)
    return [ToolUse(call) for call in undecided] if waits else []


def has_call(entry: Entry, calls: list[str]) -> bool:
    content = entry.message["message"]["content"] if entry.kind == "assistant" else ()
    return any(isinstance(block, dict) and block.get("id") in calls for block in content)
