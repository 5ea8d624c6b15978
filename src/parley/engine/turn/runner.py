"""Turn after turn: what each is about, how it begins, what joins it, and the one result at its end.

    run()        until the input has ended and nothing waits
    abort()      the running turn is cut off, or the one that is about to run
    withdraw()   a prompt is taken back, or its turn cut off
    give_way()   the same for a prompt that will not wait, but a tool that runs may finish

Not here: what happens inside a turn (turn.py), what becomes of a prompt (session/prompts.py).
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from parley.engine.session.messages import init_line, result_line
from parley.engine.session.prompt_queue import Prompt, Rejected, TakenUp
from parley.engine.session.prompts import check_size, check_words, injected
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import signs_of_life
from parley.engine.turn.outcome import Outcome
from parley.engine.turn.turn import Cut, Turn
from parley.errors import SessionError, ToolsMissing
from parley.protocol.messages.result import Result
from parley.workspace.base import WORKTREES

if TYPE_CHECKING:
    from parley.engine.recovery.orphaned_tasks import LeftBehind
    from parley.engine.session.session import Session


class Turns:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.running: Turn | None = None
        self._task: asyncio.Task[Outcome] | None = None
        self._abort_next: str | None = None
        """The prompt that an interrupt met before its turn had begun."""
        self.results = 0
        self.last_result: Result | None = None
        self._left_behind = left_behind(session)
        """The tasks that an earlier engine left behind; None if there was none."""
        self._unsaid: list[str] = []
        """What the model was to hear in turns in which it was not asked."""
        self._left_open = session.record.elicited
        """The questions of servers that an earlier engine left open."""

    async def run(self) -> None:
        session, together = self._session, False
        self._tidy()
        while (taken := await self._take(together)) is not None:
            if isinstance(taken, Rejected):
                session.ledger.begin_turn()
                refused = outcome.broken(f"The prompt was refused: {taken.reason}", "validation_error")
                self._end(Turn(session.conversation, []), refused, [] if taken.uuid is None else [taken.uuid])
            else:
                await self._run_turn(self._turn_about(taken))
            # Whatever arrived while that turn ran makes up the next one.
            together = session.setup.folds and len(session.inbox) > 0

    def _tidy(self) -> None:
        """Take away the worktrees in which agents of an earlier engine changed nothing before it was killed."""
        setup = self._session.setup
        if setup.begins_as == "resume" and os.path.isdir(os.path.join(setup.cwd, *WORKTREES)):
            self._session.helpers().lodgings.sweep_soon()

    async def _take(self, together: bool) -> list[Prompt] | Rejected | TakenUp | None:
        """What the next turn is about. When the input has ended, background tasks may still have something to say."""
        session = self._session
        while (taken := await session.inbox.take(together)) is None:
            if not await session.tasks.one_ended(session.limits.background_wait_seconds):
                if session.remembering is not None:
                    await session.remembering.settled(session.limits.background_wait_seconds)
                return None
        return taken

    def _turn_about(self, taken: list[Prompt] | TakenUp) -> Turn:
        session, going_on = self._session, isinstance(taken, TakenUp)
        if isinstance(taken, list) and (met := [prompt for prompt in taken if prompt.uuid == self._abort_next]):
            session.inbox.put_back([prompt for prompt in taken if prompt not in met])  # the interrupt did not mean them
            taken = met
        turn = Turn(
            session.conversation,
            [] if isinstance(taken, TakenUp) else taken,
            admit=None if going_on else self._admit,
            begin=session.unfinished.begin if going_on else self._begin,
            join=self._join_waiting,
            must_yield=session.inbox.is_urgent,
            taken_up=taken.calls if isinstance(taken, TakenUp) else None,
        )
        if self._abort_next in [each.uuid for each in ([taken] if isinstance(taken, TakenUp) else taken)]:
            turn.cut, self._abort_next = Cut.INTERRUPT, None
        return turn

    async def _run_turn(self, turn: Turn) -> None:
        self._session.tell_state("running")
        self.running = turn
        for prompt in turn.prompts:  # now, before another can come that would have gone first
            self._session.prompts.report(prompt, "started")
        task = self._task = asyncio.create_task(self._guarded(turn))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self.running = self._task = None
            self._unsaid += turn.hearing.contexts
        self._end(turn, task.result())

    async def _guarded(self, turn: Turn) -> Outcome:
        """Run a turn so that it ends with an outcome, come what may."""
        session = self._session
        try:
            session.ledger.begin_turn()
            with signs_of_life(session.conversation):
                await session.control.settled()
                if turn.cut is None:
                    await session.servers.settle()
                self._heed_news(turn)
                if turn.cut is None:
                    await self._expand(turn)
            return await turn.run()
        except SessionError as flaw:
            return outcome.broken(str(flaw), flaw.fault_type)
        except Exception as bug:
            # One result for every turn, also where the fault is ours.
            session.setup.complain("".join(traceback.format_exception(bug)))
            self._answer_after_bug()
            return outcome.broken(f"internal error: {type(bug).__name__}: {bug}")

    async def _expand(self, turn: Turn) -> None:
        """Let servers say what their commands stand for. An interrupt ends the asking; the turn still begins."""
        turn.announced = True
        try:
            await self._session.servers.catch_up()
            turn.prompts[:] = await self._session.servers.expanded(turn.prompts)
        except asyncio.CancelledError:
            if turn.cut is None:
                raise
        finally:
            turn.announced = False

    async def _admit(self, turn: Turn) -> Outcome | None:
        """Let the prompts in, commands as what they stand for; how the turn ends, if that is its end."""
        live = self._session.listeners.live
        refused = await live.turns.admit(turn) if live is not None else None
        refused = refused or await self._session.commands.take(turn)
        if refused is None and self._session.lead is not None:
            await self._session.lead.begin(turn)
        return refused

    def _heed_news(self, turn: Turn) -> None:
        """Let the model know what has become of its MCP servers and tasks, and how servers want to be used."""
        session = self._session
        turn.hearing.contexts += self._unsaid
        self._unsaid = []
        if self._left_behind is not None:
            stamp = session.stamp
            news = self._left_behind.news(lambda book: book.report(session.tasks.owed(), stamp.seconds, stamp.new_uuid))
            # What was left unsaid may be among them: they come again until the conversation has them.
            turn.hearing.contexts += [words for words in news if words not in turn.hearing.contexts]
        asked, self._left_open = self._left_open, None
        if asked is not None:
            turn.hearing.contexts += asked.report(session.record.note, session.tell)
        turn.hearing.contexts += session.servers.news_for_model()
        said, talk = session.servers.instructions(), session.conversation
        if said and session.record.system_text is None:
            talk.instructions = msgspec.structs.replace(talk.instructions, servers=said)

    def _answer_after_bug(self) -> None:
        text = "An internal error of the engine ended this call. Its outcome is unknown."
        try:
            self._session.conversation.answer_open_calls(text)
        except SessionError as flaw:
            self._session.setup.complain(str(flaw))

    def _begin(self, turn: Turn) -> None:
        """Announce a turn and take its prompts into the conversation. Raises ModelError if they can never fit."""
        session = self._session
        session.tell(init_line(session))
        session.servers.announce()
        check_words(turn.prompts)
        check_size(turn.prompts, session.conversation.model)
        session.conversation.recover()
        session.conversation.note_date()
        session.prompts.keep(turn.prompts)
        session.permission_mode.record()
        self._record_title()
        session.prompts.echo(turn.prompts)
        if turn.cut is not None:
            return
        if session.lead is not None and session.lead.flaw:
            raise SessionError(session.lead.flaw)
        if obstacle := session.servers.obstacle():
            raise ToolsMissing(obstacle)

    def _record_title(self) -> None:
        """What the command line calls the session, once it has something in it."""
        title, record = self._session.setup.title, self._session.record
        if title is not None and title != record.title:
            record.note("title", {"title": title})

    async def _join_waiting(self, turn: Turn) -> None:
        """Prompts that came while tools ran go into the running turn, before its next model call."""
        session = self._session
        await session.control.settled()
        await session.servers.catch_up()
        joining = session.inbox.take_prompts()
        if joining and session.listeners.live is not None:
            joining = await session.listeners.live.turns.let_in(turn, joining)
        joining = await session.commands.let_in(joining)
        if joining:
            session.prompts.keep(joining)
            session.tell(injected(joining, session.setup.joint))
            session.prompts.echo(joining)
            for prompt in joining:
                session.prompts.report(prompt, "started")
            turn.prompts += joining

    def _end(self, turn: Turn, ended: Outcome, refused: Sequence[str] = ()) -> None:
        """`refused`: the ids of prompts that it was to be about."""
        session = self._session
        session.commands.end_turn()
        session.prompts.keep_silent()
        result = result_line(session, turn, ended, refused)
        self.results += 1
        self.last_result = result
        try:
            session.record.keep(result)
        except SessionError as flaw:
            session.setup.complain(str(flaw))
        session.host.tell(result)
        for prompt in turn.prompts:
            session.prompts.report(prompt, "cancelled" if ended.is_aborted else "completed")
        if not len(session.inbox):
            session.tell_state(session.state)
        if session.suggester is not None:
            session.suggester.look(ended)
        # What was said in a turn that failed or was stopped is looked through with the next one.
        if session.remembering is not None and not (ended.is_aborted or ended.is_error):
            session.remembering.turn_ended()

    def tell_state(self) -> None:
        """Tell how it stands when something beside the turns is over; the end of one that is cut off tells that."""
        if self.running is None or self.running.cut is None:
            self._session.tell_state(self._session.state)

    # Cutting short.

    def abort(self) -> None:
        """Stop the running turn, or the one that is about to run."""
        if self.running is None or self._task is None:
            self._abort_next = self._session.inbox.next_uuid()
        else:
            self._cut(self.running, self._task, Cut.INTERRUPT)

    def withdraw(self, uuid: str) -> None:
        """A prompt is not wanted any more: it is taken back if it waits behind another, else its turn is stopped."""
        session = self._session
        waiting = next((prompt for prompt in session.prompts.behind() if prompt.uuid == uuid), None)
        if waiting is not None:
            session.prompts.withdraw(waiting)
            return
        session.abort()
        if self.running is not None and uuid not in [prompt.uuid for prompt in self.running.prompts]:
            self._abort_next = uuid  # it was on its way into the turn, and is the next one now

    def forget(self, uuid: str) -> None:
        """A prompt was taken back: if it comes again, an interrupt from before does not mean it."""
        if self._abort_next == uuid:
            self._abort_next = None

    def give_way(self) -> None:
        """A prompt came that will not wait: end the running turn, but let a tool that runs finish its work."""
        turn, task = self.running, self._task
        if turn is None or task is None or not self._session.inbox.is_urgent():
            return
        if not turn.is_working or self._session.asker.is_asking or not self._session.caller.course.has_begun:
            self._cut(turn, task, Cut.GIVE_WAY)

    def _cut(self, turn: Turn, task: asyncio.Task[Outcome], why: Cut) -> None:
        if turn.cut is None:
            turn.cut = why
            self._session.servers.hurry()
            if turn.announced:
                task.cancel()


def left_behind(session: Session) -> LeftBehind | None:
    if session.record.tasks is None:
        return None
    from parley.engine.recovery.orphaned_tasks import LeftBehind

    return LeftBehind(session.record.tasks)
