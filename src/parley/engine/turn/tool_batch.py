"""The tools' part of a turn: the calls of one answer, run and told until each has its result.

    stops = await calls.run(wanted)     # together if all only read, else one after the other
    calls.open                          # those without a result: an interrupt has come, or a hook's end
    calls.answer_rest(why)              # which they need all the same

Not here: one call's life (tool_executor.py), what follows for the turn (turn.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from parley.engine.context.conversation import Conversation
from parley.engine.hooks.feedback import Hearing
from parley.engine.text import sanitized
from parley.engine.turn.heartbeat import Heartbeat
from parley.engine.turn.result_spill import fitted
from parley.errors import SessionError
from parley.permissions.base import Deny
from parley.protocol.base import UNSET, Json, plain
from parley.protocol.blocks import ToolResult, ToolUse
from parley.protocol.messages.result import Denial
from parley.protocol.messages.system import PermissionDenied
from parley.tools.base import Result

LOOKING = frozenset({"Read", "Edit", "Write", "NotebookEdit"})
"""Tools after which a model may have to hear of memory files near what it looked at (context/nested_memory.py)."""


class Calls:
    def __init__(
        self, conversation: Conversation, hearing: Hearing, must_yield: Callable[[], bool], taken_up: list[ToolUse]
    ) -> None:
        self._conversation = conversation
        self._hearing = hearing
        self._must_yield = must_yield
        """Whether somebody waits who will not wait for calls that have not begun."""
        self.open = list(taken_up)
        """Those that have no result yet."""
        self.denials: list[Denial] = []

    async def run(self, calls: list[ToolUse]) -> bool:
        """Run the calls, together if all only read, else one after the other; True if the host ends the turn."""
        self.open = list(calls)
        caller = self._conversation.caller
        if len(calls) > 1 and all(caller.reads_only(call) for call in calls):
            return await self._run_together(calls)
        for call in calls:
            if await self._run_one(call):
                return True
            if self._must_yield():
                break
        return False

    async def _run_together(self, calls: list[ToolUse]) -> bool:
        try:
            async with asyncio.TaskGroup() as together:
                room = asyncio.Semaphore(self._conversation.limits.max_parallel_tools)
                running = [together.create_task(self._run_one(call, room)) for call in calls]
        except ExceptionGroup as several:
            if several.split(SessionError)[1] is None:
                raise several.exceptions[0] from None  # a full disk hits all of them alike
            raise
        return any(task.result() for task in running)

    async def _run_one(self, call: ToolUse, room: asyncio.Semaphore | None = None) -> bool:
        """One call and its line; True if the host, or a hook, ends the turn with it."""
        async with room or contextlib.nullcontext():
            talk = self._conversation
            with (
                talk.setup.observer.tool(call.name, call.id) as watch,
                Heartbeat(talk.tell, call, talk.limits.heartbeat_seconds),
            ):
                called = await talk.caller.run(call, talk.mode)
                watch.note(error_type="denied" if called.denied is not None else None, is_error=called.result.is_error)
        if called.denied is not None and called.stopped is None:
            self._deny(call, called.denied)
        self.tell_result(call, called.result, called.meta)
        self._hearing.note(call, called)
        if call.name in LOOKING:
            from parley.engine.context.nested_memory import heard

            self._hearing.contexts += heard(self._conversation, call, called)
        return called.stops_turn or self._hearing.stopped is not None

    def _deny(self, call: ToolUse, denial: Deny) -> None:
        self.denials.append(Denial(tool_name=call.name, tool_use_id=call.id, tool_input=call.input))
        if denial.source in ("host", "reply", "hook"):
            return  # it knows, or the result says so
        self._conversation.tell(
            PermissionDenied(
                tool_name=call.name,
                tool_use_id=call.id,
                decision_reason_type=denial.reason_type or UNSET,
                decision_reason=denial.reason or UNSET,
                message=denial.message,
            )
        )

    def tell_result(self, call: ToolUse, result: Result, meta: Json | None = None) -> None:
        talk = self._conversation
        result = fitted(clean(result), talk.limits.line_bytes, talk.new_result_file)
        talk.say_user(
            ToolResult.of(call.id, result.content, result.is_error),
            tool_use_result=UNSET if result.detail is None else result.detail,
            tool_result_meta=[{"id": call.id, **meta}] if meta else UNSET,
        )
        self.open.remove(call)

    def tell_ran(self) -> None:
        """Calls that ran have their real results, also if the turn was cut before all hooks had heard of them."""
        for call in list(self.open):
            called = self._conversation.caller.course.take(call.id)
            if called is not None:
                self.tell_result(call, called.result, called.meta)

    def answer_rest(self, text: str, detail: str | None = None, meta: Json | None = None) -> None:
        """Calls that will not run need their results all the same."""
        for call in list(self.open):
            result = Result(content=text, detail=f"Error: {text}" if detail is None else detail, is_error=True)
            self.tell_result(call, result, meta)


def clean(result: Result) -> Result:
    detail = None if result.detail is None else sanitized(plain(result.detail))
    return Result(content=sanitized(result.content), detail=detail, is_error=result.is_error)
