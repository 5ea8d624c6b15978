"""`/compact` and `/clear`: what a person does about a conversation as a whole.

Prompts that ask no model for an answer. Each is a turn by itself, with its `init` and its one
`result`; the prompt is recorded as a `command`, and never sent to a model.

    /compact [what the summary should heed]    the conversation goes on from a summary of it
    /clear                                     it begins anew, and so does the bill
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from parley.engine.context.compactor import compactor_for
from parley.engine.session.messages import init_line
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import signs_of_life
from parley.engine.turn.outcome import Outcome
from parley.engine.turn.turn import Cut, Turn
from parley.errors import BudgetSpent, ModelError
from parley.hooks.base import context_text
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.notices import ConversationReset

if TYPE_CHECKING:
    from parley.engine.session.session import Session

DISABLED = "Compaction is disabled here (DISABLE_COMPACT)."
TOO_SHORT = "Nothing was compacted: there is too little to compact, or a hook did not want it."


async def run(session: Session, turn: Turn, name: str, words: str) -> Outcome:
    """The turn of a command. Raises SessionError, and CancelledError only if the process itself is ending."""
    try:
        session.record.note("command", {"uuid": turn.prompts[0].uuid, "command": name, "args": words})
        return await COMMANDS[name](session, turn, words)
    except asyncio.CancelledError:
        if turn.cut is None:
            raise
        return _cut(session, turn)
    except ModelError as flaw:
        session.tell(init_line(session))
        return outcome.api_failed(flaw, outcome.error_text(flaw))
    except BudgetSpent as flaw:
        session.tell(init_line(session))
        return outcome.out_of_budget(flaw, None)


def _cut(session: Session, turn: Turn) -> Outcome:
    session.tell(init_line(session))
    ended = outcome.gave_way if turn.cut is Cut.GIVE_WAY else outcome.aborted
    return ended("streaming", None)


async def compact(session: Session, turn: Turn, words: str) -> Outcome:
    """Raises ModelError, BudgetSpent, SessionError."""
    if not session.setup.compaction.is_allowed:
        session.tell(init_line(session))
        return outcome.commanded("compact", DISABLED)
    session.conversation.recover()  # what an earlier engine left open is part of what is summed up
    compactor = compactor_for(session.conversation)
    done = await compactor.compact("manual", words or None)
    session.tell(init_line(session))
    if done is None:
        return outcome.commanded("compact", TOO_SHORT)
    compactor.record(done)
    output = "<local-command-stdout>Compacted</local-command-stdout>"
    session.tell(
        User(
            message=UserContent(content=[Text.of(output)]),
            parent_tool_use_id=None,
            timestamp=session.stamp.now(),
            isReplay=True,
        )
    )
    return outcome.commanded("compact")


async def clear(session: Session, turn: Turn, words: str) -> Outcome:
    """The session keeps its id and its log: whoever resumes it finds it cleared. Raises SessionError."""
    live = session.listeners.live
    if live is not None:
        with signs_of_life(session.conversation):
            await live.fire("SessionEnd", {"reason": "clear"})
    id = session.stamp.new_uuid()
    reset = session.stamp.on(
        ConversationReset(
            new_conversation_id=id,
            uuid=id,
            trigger="clear",
            user_message_uuid=turn.prompts[0].uuid,
            timestamp=session.stamp.now(),
        ),
        session.id,
    )
    session.record.keep(reset)
    session.ledger.restart()
    session.conversation.gauge.reset(0)
    session.host.tell(reset)
    if live is not None:
        with signs_of_life(session.conversation):
            started = await live.fire("SessionStart", {"source": "clear", "model": session.conversation.model.shown})
        session.conversation.keep_contexts([context_text("SessionStart:clear", text) for text in started.contexts])
    session.tell(init_line(session))
    return outcome.commanded("clear")


COMMANDS: dict[str, Callable[[Session, Turn, str], Awaitable[Outcome]]] = {
    "compact": compact,
    "clear": clear,
}
