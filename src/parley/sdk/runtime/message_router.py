"""What an engine said, sorted for those who read it.

It belongs to the link, not to the client: a client that is dropped can be collected, whatever
is still read. Nothing is thrown away: what is here when a session ends can be read afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from parley.protocol import base
from parley.protocol.messages.notices import CommandLifecycle
from parley.protocol.messages.system import Init
from parley.sdk.errors import ClaudeSDKError, CLIConnectionError, ProcessError, ResultError, sentences
from parley.sdk.runtime.message_parser import read
from parley.sdk.runtime.transport import Ended
from parley.sdk.runtime.turns import Stream, Turns, is_end
from parley.sdk.types import messages as ours


class Inbox:
    def __init__(self) -> None:
        self.stream = Stream()
        self.turns = Turns()
        self.last_result: ours.ResultMessage | None = None
        self.init: Init | None = None
        self.unanswered = 0
        """How many plain prompts were sent since the last result."""
        self.made_up: set[str] = set()
        """Ids that prompts got from us: what the engine tells of them is not what the program asked for."""
        self.watchers: list[Callable[[base.Message], None]] = []

    @property
    def is_busy(self) -> bool:
        return self.unanswered > 0 or self.turns.is_busy

    def put(self, message: base.Message) -> None:
        if not (isinstance(message, CommandLifecycle) and message.command_uuid in self.made_up):
            self._sort(message)
        for watch in self.watchers:
            watch(message)

    def _sort(self, message: base.Message) -> None:
        if isinstance(message, Init):
            self.init = message
        turns, found = self.turns.route(message), read(message)
        if isinstance(found, ours.ResultMessage):
            self.last_result = found
        if turns is None and is_end(found):
            self.unanswered = 0
        for stream in (self.stream,) if turns is None else turns:
            stream.put(found)
        if turns is not None and is_end(found):
            self.turns.settle(turns, found)

    def finish(self, flaw: ClaudeSDKError | None, closed: bool) -> None:
        """The engine is gone; `closed`: because the client wanted it so."""
        cut_off = flaw or CLIConnectionError("the engine ended before the turn did")
        self.turns.finish(lambda: None if closed else cut_off)
        self.stream.finish(lambda: None if closed else flaw)


def flaw_of(ended: Ended, broken: BaseException | None, last: ours.ResultMessage | None) -> ClaudeSDKError | None:
    """What is wrong with the way an engine ended; None if nothing."""
    if broken is not None:
        made = CLIConnectionError(f"the engine cannot be read any more: {broken}")
        made.__cause__ = broken
        return made
    if not ended.exit_code:
        return None
    if last is not None and last.is_error:
        words = "; ".join(sentences(last.errors)) or last.result or last.subtype
        failed: ProcessError = ResultError(words, last.raw, ended.exit_code)
        failed.stderr = ended.stderr
    else:
        failed = ProcessError("the engine failed", ended.exit_code, ended.stderr)
    failed.argv = ended.argv
    return failed
