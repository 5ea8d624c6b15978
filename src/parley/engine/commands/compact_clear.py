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

from parley.engine.context.compactor import make_compactor
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import keep_alive
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.turn import StopCause, Turn
from parley.errors import BudgetSpent, ModelError
from parley.hooks.base import format_context
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.notices import ConversationReset

if TYPE_CHECKING:
    from parley.engine.session.session import Session

DISABLED = "Compaction is disabled here (DISABLE_COMPACT)."
TOO_SHORT = "Nothing was compacted: there is too little to compact, or a hook did not want it."


async def run(session: Session, turn: Turn, name: str, words: str) -> TurnOutcome:
    """The turn of a command. Raises SessionError, and CancelledError only if the process itself is ending."""
    try:
        session.journal.append_event("command", {"uuid": turn.prompts[0].uuid, "command": name, "args": words})
        return await COMMANDS[name](session, turn, words)
    except asyncio.CancelledError:
        if turn.stop_cause is None:
            raise
        return _interrupted(session, turn)
    except ModelError as exc:
        session.send_init()
        return outcome.api_failed(exc, outcome.error_text(exc))
    except BudgetSpent as exc:
        session.send_init()
        return outcome.out_of_budget(exc, None)


def _interrupted(session: Session, turn: Turn) -> TurnOutcome:
    session.send_init()
    ended = outcome.yielded if turn.stop_cause is StopCause.GIVE_WAY else outcome.aborted
    return ended("streaming", None)


async def compact(session: Session, turn: Turn, words: str) -> TurnOutcome:
    """Raises ModelError, BudgetSpent, SessionError."""
    if not session.config.compaction.is_allowed:
        session.send_init()
        return outcome.local_command("compact", DISABLED)
    session.conversation.close_interrupted_calls()  # what an earlier engine left open is part of what is summed up
    compactor = make_compactor(session.conversation)
    done = await compactor.compact("manual", words or None)
    session.send_init()
    if done is None:
        return outcome.local_command("compact", TOO_SHORT)
    compactor.append(done)
    output = "<local-command-stdout>Compacted</local-command-stdout>"
    session.send(
        User(
            message=UserContent(content=[Text.of(output)]),
            parent_tool_use_id=None,
            timestamp=session.clock.now(),
            isReplay=True,
        )
    )
    return outcome.local_command("compact")


async def clear(session: Session, turn: Turn, words: str) -> TurnOutcome:
    """The session keeps its id and its log: whoever resumes it finds it cleared. Raises SessionError."""
    dispatcher = session.hooks.dispatcher
    if dispatcher is not None:
        with keep_alive(session.send, session.limits.heartbeat_seconds):
            await dispatcher.fire("SessionEnd", {"reason": "clear"})
    id = session.clock.new_uuid()
    reset = session.clock.stamp_message(
        ConversationReset(
            new_conversation_id=id,
            uuid=id,
            trigger="clear",
            user_message_uuid=turn.prompts[0].uuid,
            timestamp=session.clock.now(),
        ),
        session.id,
    )
    session.journal.append(reset)
    session.ledger.restart()
    session.conversation.gauge.reset(0)
    session.host.send(reset)
    if dispatcher is not None:
        with keep_alive(session.send, session.limits.heartbeat_seconds):
            started = await dispatcher.fire(
                "SessionStart", {"source": "clear", "model": session.conversation.model.display_name}
            )
        session.conversation.append_contexts([format_context("SessionStart:clear", text) for text in started.contexts])
    session.send_init()
    return outcome.local_command("clear")


COMMANDS: dict[str, Callable[[Session, Turn, str], Awaitable[TurnOutcome]]] = {
    "compact": compact,
    "clear": clear,
}
