"""`/compact` and `/clear`: commands that work on the whole conversation.

Each is a turn of its own, with one `init` and one `result`. The prompt is recorded as a `command` and never
sent to a model.

    /compact [instructions for the summary]    continue from a summary of the conversation
    /clear                                     start over, with the cost at zero
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parley.engine.context.compactor import make_compactor
from parley.engine.goal import SessionGoal
from parley.engine.turn import outcome
from parley.engine.turn.outcome import StopCause, TurnOutcome
from parley.engine.turn.turn import Turn
from parley.errors import BudgetSpent, ModelError
from parley.protocol.blocks import Text
from parley.protocol.messages.conversation import User, UserContent
from parley.protocol.messages.notices import ConversationReset

DISABLED = "Compaction is disabled here (DISABLE_COMPACT)."
TOO_SHORT = "Nothing was compacted: there is too little to compact, or a hook blocked it."


async def run(turn: Turn, name: str, arguments: str, send_init: Callable[[], None]) -> TurnOutcome:
    """Run the turn of a command. Raises SessionError, and CancelledError only if the process is ending."""
    try:
        turn.conversation.journal.append_event(
            "command", {"uuid": turn.prompts[0].uuid, "command": name, "args": arguments}
        )
        return await COMMANDS[name](turn, arguments, send_init)
    except asyncio.CancelledError:
        if turn.stop_cause is None:
            raise
        send_init()
        ended = outcome.yielded if turn.stop_cause is StopCause.GIVE_WAY else outcome.aborted
        return ended("streaming", None)
    except ModelError as exc:
        send_init()
        return outcome.api_failed(exc, outcome.error_text(exc))
    except BudgetSpent as exc:
        send_init()
        return outcome.out_of_budget(exc, None)


async def compact(turn: Turn, arguments: str, send_init: Callable[[], None]) -> TurnOutcome:
    """Raises ModelError, BudgetSpent, SessionError."""
    conversation = turn.conversation
    if not conversation.config.compaction.is_allowed:
        send_init()
        return outcome.local_command("compact", DISABLED)
    conversation.close_interrupted_calls()  # calls that an earlier process left open are summarized too
    compactor = make_compactor(conversation)
    done = await compactor.compact("manual", arguments or None)
    send_init()
    if done is None:
        return outcome.local_command("compact", TOO_SHORT)
    compactor.append(done)
    output = "<local-command-stdout>Compacted</local-command-stdout>"
    conversation.send(
        User(
            message=UserContent(content=[Text.of(output)]),
            parent_tool_use_id=None,
            timestamp=conversation.clock.now(),
            isReplay=True,
        )
    )
    return outcome.local_command("compact")


async def clear(turn: Turn, arguments: str, send_init: Callable[[], None]) -> TurnOutcome:
    """Begin a new session, if sessions here do not keep their id. Raises SessionError.

    A session that keeps its id is cleared when it is resumed, too. Otherwise the old session can be resumed as it was.
    """
    conversation = turn.conversation
    clock, events = conversation.clock, conversation.hooks.events
    await events.before_clear()
    had_goal = conversation.journal.goal is not None
    id, prompt, begin = clock.new_uuid(), turn.prompts[0], conversation.config.storage.begin_session
    reset = ConversationReset(
        new_conversation_id=id,
        uuid=id,
        trigger="clear",
        user_message_uuid=prompt.uuid,
        timestamp=clock.now(),
        session_id=conversation.config.identity.id,
    )
    if begin is None:
        conversation.append_and_send(reset)
    else:
        conversation.journal.append_event(
            "command", {"uuid": prompt.uuid, "command": "clear", "args": arguments, "text": ""}
        )
        conversation.journal.begin(begin())
        conversation.send(reset)
    if had_goal:
        SessionGoal(conversation).announce()
    conversation.ledger.restart()
    conversation.gauge.reset(0)
    conversation.append_contexts(await events.after_clear())
    send_init()
    return outcome.local_command("clear")


COMMANDS: dict[str, Callable[[Turn, str, Callable[[], None]], Awaitable[TurnOutcome]]] = {
    "compact": compact,
    "clear": clear,
}
