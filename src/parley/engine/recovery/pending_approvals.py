"""Questions that outlive an engine, and the turn that goes on with them.

    question    {"request_id", "tool_use_id"}     on record before anybody is asked
    answered    {"request_id", "tool_use_id"}     when an answer has come

Those for a host's PreToolUse callback have its `callback_id` as well.

A call that the client runs waits likewise (turn/client_tools.py): the question has `waits_for`
then, and it is answered by the call's result.

A session that is resumed while a question is open takes the turn up again where it waited:
the same is asked under the same ids. Nothing happens before the host has said something.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.session.messages import init_message
from parley.engine.session.prompt_queue import ResumedTurnItem
from parley.engine.turn.result_spill import fit_input
from parley.errors import ToolsMissing
from parley.host import Host
from parley.protocol.base import Json, convert
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.conversation import Assistant
from parley.protocol.messages.dialects import AnswerComplete
from parley.protocol.messages.requests import CanUseTool, HookCallback, Request
from parley.stores.base import Entry

if TYPE_CHECKING:
    from parley.engine.session.journal import Journal
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn


class PendingApprovals:
    """The questions about calls: each is on record while it is open."""

    def __init__(self, journal: Journal, new_id: Callable[[], str]) -> None:
        self._journal = journal
        self._new_id = new_id
        self._waiting: set[str] = set()
        """The ids that are taken: two may ask alike, a callback that is registered twice or two calls of one id."""

    async def request(self, asked: CanUseTool | HookCallback, send: Callable[[str], Awaitable[Any]]) -> Any:
        """The answer to a question that `put` asks under an id. Raises HostGone or AnswerIsError."""
        request_id = self._open(asked)
        self._waiting.add(request_id)
        try:
            answer = await send(request_id)
        finally:
            self._waiting.discard(request_id)
        self._journal.append_event("answered", {"request_id": request_id, **call_names(asked)})
        return answer

    def _open(self, asked: CanUseTool | HookCallback) -> str:
        """The id to ask under: that of a question which an earlier engine left open, else a new one."""
        about = call_names(asked)
        open_id = self._journal.questions.get(str(asked.tool_use_id), {}).get(about.get("callback_id", ""))
        if open_id is not None and open_id not in self._waiting:
            return open_id
        request_id = self._new_id()
        self._journal.append_event("question", {"request_id": request_id, **about})
        return request_id


def call_names(asked: CanUseTool | HookCallback) -> Json:
    own = {"callback_id": asked.callback_id} if isinstance(asked, HookCallback) else {}
    return {"tool_use_id": asked.tool_use_id, **own}


class RecordingHost:
    """The host as its own callbacks know it: what they are asked before a call is on record while it is open.

    The other events are not: what they are about has happened, or comes again with the next prompt. What they are
    told is never longer than a line may be.
    """

    def __init__(self, host: Host, pending: PendingApprovals, max_bytes: int, warn: Callable[[str], None]) -> None:
        self._host = host
        self._pending = pending
        self._max_bytes = max_bytes
        self._warn = warn
        self.send = host.send
        self.pending_requests = host.pending_requests
        self.drain = host.drain

    async def request(self, request: Request, request_id: str | None = None) -> Any:
        if not isinstance(request, HookCallback):
            return await self._host.request(request, request_id)
        whole, request = request, self._fit(request)
        if request.input.get("hook_event_name") != "PreToolUse":
            return await self._host.request(request, request_id)
        answer = await self._pending.request(request, partial(self._host.request, request))
        if request is not whole:
            self._refuse_unless_denied(answer)
        return answer

    def _refuse_unless_denied(self, answer: Any) -> None:
        """Raises HookFailed: a hook that saw the beginning of an input may deny the call, and nothing else."""
        from parley.hooks.output import HookFailed, is_denial, parse_output

        if not is_denial(parse_output(answer)):
            raise HookFailed(
                f"the input does not fit into a line of {self._max_bytes} bytes, so it saw only a part of it"
            )

    def _fit(self, request: HookCallback) -> HookCallback:
        input = fit_input(request.input, self._max_bytes)
        if input is request.input:
            return request
        event = input.get("hook_event_name")
        self._warn(f"callback {request.callback_id} of {event}: what it is told is cut, a line would be too long")
        return msgspec.structs.replace(request, input=input)


class ResumedTurn:
    """The turn that an earlier engine left waiting for an answer, if it did."""

    def __init__(self, session: Session) -> None:
        self._session = session
        record = session.journal
        undecided = [
            call
            for call in record.history.open_tool_uses()
            if call["id"] not in record.decided_calls or call["id"] in record.awaited_calls
        ]
        # Whoever forks a session leaves its questions to the one that goes on.
        waits = session.config.storage.start_source != "fork" and any(
            call["id"] in record.questions for call in undecided
        )
        self._calls = [ToolUse(call) for call in undecided] if waits else []

    @property
    def is_waiting(self) -> bool:
        return bool(self._calls)

    def enqueue(self) -> None:
        """The host is there: the turn goes on before anything else. Once is enough."""
        calls, self._calls = self._calls, []
        if calls:
            self._session.prompt_queue.put(ResumedTurnItem(uuid=calls[0].id, calls=calls))

    def start(self, turn: Turn) -> None:
        """Announce a turn that goes on. Raises SessionError."""
        session = self._session
        session.send(init_message(session))
        session.servers.announce()
        session.conversation.close_interrupted_calls(excluded=turn.resumed_calls)
        self._repeat([call.id for call in turn.resumed_calls if call.id in session.journal.awaited_calls])
        if turn.stop_cause is None and (obstacle := session.servers.find_obstacle()):
            raise ToolsMissing(obstacle)

    def _repeat(self, calls: list[str]) -> None:
        """Tell the lines once more that hand calls to a client: the one it was told to may be gone."""
        if not calls:
            return
        said = [entry.message for entry in self._session.config.storage.log.entries() if has_call(entry, calls)]
        for line in said:
            self._session.host.send(convert(line, Assistant))
        self._session.send(AnswerComplete(message_id=str(said[-1]["message"].get("id")) if said else ""))


def has_call(entry: Entry, calls: list[str]) -> bool:
    content = entry.message["message"]["content"] if entry.kind == "assistant" else ()
    return any(isinstance(block, dict) and block.get("id") in calls for block in content)
