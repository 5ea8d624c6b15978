"""Route messages of an engine to the streams that a program reads.

The connection owns the router and does not reference the client, so that a dropped client can be
collected. Messages that are unread when the session ends can still be read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from parley.protocol import base
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.panel_requests import CancelAsyncMessage
from parley.protocol.messages.requests import Interrupt
from parley.protocol.messages.system import Init
from parley.sdk.errors import ClaudeSDKError, CLIConnectionError, OptionsError, ProcessError, ResultError, name_options
from parley.sdk.runtime.background import start
from parley.sdk.runtime.message_parser import parse_message
from parley.sdk.runtime.transport import Ended
from parley.sdk.runtime.turns import MessageBuffer, TurnQueue, TurnRecord, TurnTracker, is_end
from parley.sdk.types import messages as ours

if TYPE_CHECKING:
    from parley.sdk.runtime.connection import EngineConnection

REFUSAL = "Error: "
"""What stands before the reason if an engine does not start with its options."""


class MessageRouter:
    """Passes each message to the turns it belongs to, or to the common stream."""

    def __init__(self) -> None:
        self.common = MessageBuffer()
        """The messages that belong to no turn."""
        self.turns = TurnTracker()
        self.queue = TurnQueue(self.turns)
        self.last_result: ours.ResultMessage | None = None
        self.init: Init | None = None
        self.in_turn = False
        """Whether the engine runs a turn, be it of a prompt or its own."""
        self.unanswered = 0
        """How many prompts without a turn were sent since the last result."""
        self.own_uuids: set[str] = set()
        """Ids that the SDK gave to prompts. Lifecycle messages about them are not passed to the program."""
        self.watchers: list[Callable[[base.Message], None]] = []

    @property
    def is_busy(self) -> bool:
        return self.unanswered > 0 or self.turns.is_busy

    def receive(self, message: base.Message) -> None:
        if not (isinstance(message, CommandLifecycle) and message.command_uuid in self.own_uuids):
            self._route(message)
        for watch in self.watchers:
            watch(message)
        self.send_next()

    def _route(self, message: base.Message) -> None:
        if isinstance(message, Init):
            self.init, self.in_turn = message, True
        turns, found = self.turns.route(message), parse_message(message)
        if isinstance(found, ours.ResultMessage):
            self.last_result = found
        for buffer in (self.common,) if turns is None else turns:
            buffer.put(found)
        if is_end(found):
            self.in_turn = False
            if turns is None:
                self.unanswered = 0
            else:
                self.turns.settle(turns, found)

    def send_next(self) -> None:
        """Send the next prompt that waits for a turn of its own, if no other prompt is open."""
        if not self.queue.is_empty and not self.is_busy:
            self.queue.send_next()

    def finish(self, error: ClaudeSDKError | None, closed: bool) -> None:
        """End all streams after the engine has exited. `closed`: the client closed it."""
        turn_error = error or CLIConnectionError("the engine exited before the turn ended")
        self.turns.finish(lambda: None if closed else turn_error)
        self.queue.finish(lambda: None if closed else turn_error)
        self.common.finish(lambda: None if closed else error)


def leave_turn(link: EngineConnection, router: MessageRouter, turn: TurnRecord) -> None:
    """Stop the turn of a reader that is being cancelled: it cannot wait for the engine, so a job of its own does."""
    if not turn.is_finished and not router.queue.withdraw(turn.uuid):
        start(lambda: stop_turn(link, router, turn))


async def stop_turn(link: EngineConnection, router: MessageRouter, turn: TurnRecord) -> None:
    """Interrupt a turn that is not read any more, or withdraw its prompt if it has not started."""
    # A prompt that was sent may run before the engine says so. Then it cannot be withdrawn any more.
    with suppress(ClaudeSDKError):
        if turn.state in ("sent", "queued"):
            answer = await link.request(CancelAsyncMessage(message_uuid=turn.uuid))
            if isinstance(answer, dict) and answer.get("cancelled"):
                return
    with suppress(ClaudeSDKError):
        if not turn.is_finished and not router.turns.is_shared(turn):
            await link.request(Interrupt())


def end_error(ended: Ended, broken: BaseException | None, last: ours.ResultMessage | None) -> ClaudeSDKError | None:
    """Return the error that an engine exited with, or None for a regular exit."""
    if broken is not None:
        error = CLIConnectionError(f"reading from the engine failed: {broken}")
        error.__cause__ = broken
        return error
    if not ended.exit_code:
        return None
    if last is not None and last.is_error:
        failed: ProcessError = ResultError.from_message(last)
        failed.exit_code, failed.stderr = ended.exit_code, ended.stderr
    elif last is None and (refusal := find_refusal(ended.stderr)):
        failed = OptionsError(refusal)
        failed.exit_code, failed.stderr = ended.exit_code, ended.stderr
    else:
        failed = ProcessError("the engine exited with an error", ended.exit_code, ended.stderr)
    failed.argv = ended.argv
    return failed


def find_refusal(stderr: str) -> str:
    """Why an engine did not accept its options, which is the last line that it wrote; empty if it failed otherwise."""
    last = stderr.strip().rpartition("\n")[2]
    return name_options(last.removeprefix(REFUSAL)) if last.startswith(REFUSAL) else ""
