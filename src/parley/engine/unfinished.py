"""Questions that outlive an engine, and the turn that goes on with them.

    question    {"request_id", "tool_use_id"}     on record before anybody is asked
    answered    {"request_id", "tool_use_id"}     when an answer has come

A session that is resumed while a question is open takes the turn up again where it waited:
the same is asked under the same ids. Nothing happens before the host has said something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parley.engine.inbox import TakenUp
from parley.engine.lines import init_line
from parley.errors import SessionError
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool

if TYPE_CHECKING:
    from parley.engine.record import Record
    from parley.engine.session import Session
    from parley.engine.turn import Turn


class Questions:
    """The questions about calls: each is on record while it is open."""

    def __init__(self, record: Record, new_id: Callable[[], str]) -> None:
        self._record = record
        self._new_id = new_id

    def begin(self, asked: CanUseTool) -> str:
        """The id to ask under: that of a question which an earlier engine left open, else a new one."""
        open_id = self._record.questions.get(str(asked.tool_use_id))
        if open_id is not None:
            return open_id
        request_id = self._new_id()
        self._record.note("question", names(request_id, asked))
        return request_id

    def end(self, request_id: str, asked: CanUseTool) -> None:
        self._record.note("answered", names(request_id, asked))


def names(request_id: str, asked: CanUseTool) -> Json:
    return {"request_id": request_id, "tool_use_id": asked.tool_use_id}


class Unfinished:
    """The turn that an earlier engine left waiting for an answer, if it did."""

    def __init__(self, session: Session) -> None:
        self._session = session
        record = session.record
        undecided = [call for call in record.history.open_uses() if call["id"] not in record.decided]
        # Whoever forks a session leaves its questions to the one that goes on.
        waits = session.setup.begins_as != "fork" and any(call["id"] in record.questions for call in undecided)
        self._calls = [ToolUse(call) for call in undecided] if waits else []

    @property
    def waits(self) -> bool:
        return bool(self._calls)

    def offer(self) -> None:
        """The host is there: the turn goes on before anything else. Once is enough."""
        calls, self._calls = self._calls, []
        if calls:
            self._session.inbox.put(TakenUp(uuid=calls[0].id, calls=calls))

    def begin(self, turn: Turn) -> None:
        """Announce a turn that goes on. Raises SessionError."""
        session = self._session
        session.tell(init_line(session))
        session.servers.announce()
        session.conversation.recover(but=turn.taken_up)
        if turn.cut is None and (obstacle := session.servers.obstacle()):
            raise SessionError(obstacle)
