"""One run of a subagent: from its first prompt, or a message that makes it go on, to what its caller is given.

    run = AgentRun(session, stats, task, kind, made, log)
    session.tasks.begin(task, asyncio.create_task(run.watch()))

Messages that come while it runs (`task.letters`) are read before its next model call; those that come too late for
that make it go on when it is done. Whatever happens, its record has a result for every call, and its task an end.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from parley.engine.accounting.ledger import Ledger
from parley.engine.agents.forwarding import Voice, activity
from parley.engine.agents.resources import Outfit, brings_anything
from parley.engine.agents.setup import Made
from parley.engine.agents.stats import Stats
from parley.engine.agents.task import AgentTask
from parley.engine.approval.grants import Grants
from parley.engine.context.conversation import Conversation
from parley.engine.session.journal import Record
from parley.engine.session.prompt_queue import Prompt
from parley.engine.turn import outcome
from parley.engine.turn.outcome import Outcome
from parley.engine.turn.tool_executor import Caller
from parley.engine.turn.tool_outcome import Called
from parley.engine.turn.turn import Turn
from parley.errors import SessionError
from parley.protocol.base import Json
from parley.protocol.blocks import Text, ToolUse
from parley.protocol.messages.requests import AgentDefinition
from parley.protocol.messages.system import TaskProgress
from parley.stores.base import Log

if TYPE_CHECKING:
    from parley.engine.session.session import Session

GONE_ON = "[The agent was stopped here]"


class Watched(Caller):
    """A caller that says what its agent is doing."""

    begins: Callable[[ToolUse], None] = lambda call: None

    async def run(self, call: ToolUse, mode: Callable[[], str]) -> Called:
        self.begins(call)
        return await super().run(call, mode)


class AgentRun:
    def __init__(
        self, session: Session, stats: Stats, task: AgentTask, kind: AgentDefinition, made: Made, log: Log
    ) -> None:
        self._session = session
        self._stats = stats
        self._task = task
        self._agent: Json = {"agent_id": task.id, "agent_type": task.call.subagent_type}
        self._voice = Voice(session.host.tell, task, forwards_text=lambda: session.forwards_subagent_text)
        self._outfit = Outfit(session, task.call.subagent_type, kind) if brings_anything(kind) else None
        self.conversation = task.conversation = self._conversation(made, log)

    def _conversation(self, made: Made, log: Log) -> Conversation:
        session, task = self._session, self._task
        caller = Watched(
            made.setup.tools,
            session.asker,
            made.setup.tool_context,
            session.record.note,
            session.setup.complain,
            agent=self._agent,
            listeners=session.listeners,
        )
        caller.begins = self._tell_progress
        talk = Conversation(
            msgspec.structs.replace(made.setup, log=log),
            Record(log, session.stamp, Grants(session.id, session.setup.cwd)),
            self._voice.say,
            ledger=session.ledger,
            caller=caller,
            access=session.access,
            mode=made.mode,
            listeners=session.listeners,
            parent_tool_use_id=task.tool_use_id,
        )
        talk.model = made.model
        talk.transcript_path = session.setup.agent_transcript_path(task.id)
        return talk

    def take_up(self) -> None:
        """Know what it said in earlier runs. What those cost is on the session's bill already. Raises SessionError."""
        talk, setup = self.conversation, self._session.setup
        talk.record.read(Ledger(setup.prices, setup.limits.budget, setup.stamp.monotonic), setup.complain)
        talk.recover()

    def turn_about(self, text: str) -> Turn:
        talk = self.conversation
        prompt = Prompt(content=[{"type": "text", "text": text}], uuid=self._session.stamp.new_uuid())
        turn = self._task.turn = Turn(
            talk, [prompt], begin=lambda turn: talk.say_user(Text.of(text)), join=self._read_letters
        )
        return turn

    async def _read_letters(self, turn: Turn) -> None:
        letters, self._task.letters = self._task.letters, []
        for letter in letters:
            self.conversation.say_user(Text.of(letter))

    # Its life.

    async def watch(self, turn: Turn) -> None:
        task = self._task
        try:
            ended = await self._guarded(turn)
        except asyncio.CancelledError:
            self._stats.killed["user"] += 1
            self._voice.mute()
            self._close(GONE_ON)
            raise
        assert task.turn is not None
        task.is_done = True
        task.end(ended, task.turn)
        self._stats.end(task.failed)
        self._close("")
        task.is_kept = await self._session.helpers().lodgings.leave(task.id)
        status = "failed" if task.failed else "completed"
        self._session.tasks.finish(task, status, task.text or task.flaw, task.news(status))

    async def _guarded(self, turn: Turn) -> Outcome:
        """Live so that it ends with an outcome, come what may."""
        try:
            return await self._live(turn)
        except SessionError as flaw:
            return outcome.broken(str(flaw))
        except Exception as bug:
            self._session.setup.complain("".join(traceback.format_exception(bug)))
            return outcome.broken(f"internal error: {type(bug).__name__}: {bug}")

    async def _live(self, turn: Turn) -> Outcome:
        """Its whole life, with all that it brings."""
        task, outfit = self._task, self._outfit
        try:
            if outfit is not None:
                turn.hearing.contexts += await outfit.put_on(task.id, self.conversation.setup.tools)
            live = self._session.listeners.live
            if live is not None:
                turn.hearing.contexts += await live.turns.start_agent(self._agent)
            ended = await turn.run()
            while task.letters and not ended.is_error:
                letters, task.letters = task.letters, []
                ended = await self.turn_about("\n\n".join(letters)).run()
            return ended
        finally:
            if outfit is not None:
                outfit.take_off()

    def _close(self, why: str) -> None:
        """Leave a record in which every call has its result, and nothing open."""
        task, talk, session = self._task, self.conversation, self._session
        try:
            if why:
                if task.turn is not None:
                    task.turn.calls.tell_ran()
                talk.answer_open_calls(why)
        except SessionError as flaw:
            session.setup.complain(str(flaw))
        if not task.in_background and session.turn is not None and task.turn is not None:
            session.turn.calls.denials += task.turn.calls.denials
        talk.setup.log.close()
        task.release()

    def _tell_progress(self, tool: ToolUse) -> None:
        task = self._task
        task.note_call(tool.name)
        self._session.tell(
            TaskProgress(
                task_id=task.id,
                run_id=task.run_id,
                tool_use_id=task.tool_use_id,
                description=activity(tool),
                subagent_type=task.call.subagent_type,
                usage=task.usage(),
                last_tool_name=tool.name,
            )
        )
