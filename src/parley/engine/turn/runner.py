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

from parley.engine.session.messages import init_message, result_message
from parley.engine.session.prompt_queue import Prompt, RejectedPrompt, ResumedTurnItem
from parley.engine.session.prompts import check_not_empty, check_size, injected_message
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import keep_alive
from parley.engine.turn.outcome import TurnOutcome
from parley.engine.turn.turn import StopCause, Turn
from parley.errors import SessionError, ToolsMissing
from parley.protocol.messages.result import Result
from parley.workspace.base import WORKTREES

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.engine.recovery.orphaned_tasks import OrphanedTasks
    from parley.engine.session.session import Session


class TurnRunner:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.current: Turn | None = None
        self._task: asyncio.Task[TurnOutcome] | None = None
        self._abort_next: str | None = None
        """The prompt that an interrupt met before its turn had begun."""
        self.results = 0
        self.last_result: Result | None = None
        self._orphaned_tasks = load_orphaned_tasks(session)
        """The tasks that an earlier engine left behind; None if there was none."""
        self._unsent_contexts: list[str] = []
        """What the model was to hear in turns in which it was not asked."""
        self._orphaned_elicitations = session.journal.elicitations
        """The questions of servers that an earlier engine left open."""

    async def run(self) -> None:
        session, together = self._session, False
        self._sweep_worktrees()
        while (item := await self._next_item(together)) is not None:
            if isinstance(item, RejectedPrompt):
                session.ledger.begin_turn()
                refused = outcome.failed(f"The prompt was refused: {item.reason}", "validation_error")
                self._finish(Turn(session.conversation, []), refused, [] if item.uuid is None else [item.uuid])
            else:
                await self._run_turn(self._make_turn(item))
            # Whatever arrived while that turn ran makes up the next one.
            together = session.config.client.merge_prompts and len(session.prompt_queue) > 0

    def _sweep_worktrees(self) -> None:
        """Take away the worktrees in which agents of an earlier engine changed nothing before it was killed."""
        config = self._session.config
        if config.storage.start_source == "resume" and os.path.isdir(os.path.join(config.cwd, *WORKTREES)):
            self._session.get_subagents().worktrees.sweep_soon()

    async def _next_item(self, merge: bool) -> list[Prompt] | RejectedPrompt | ResumedTurnItem | None:
        """What the next turn is about. When the input has ended, background tasks may still have something to say."""
        session = self._session
        while (item := await session.prompt_queue.take(merge)) is None:
            if not await session.tasks.wait_any(session.limits.background_wait_seconds):
                if session.memory_worker is not None:
                    await session.memory_worker.wait_idle(session.limits.background_wait_seconds)
                return None
        return item

    def _make_turn(self, item: list[Prompt] | ResumedTurnItem) -> Turn:
        session, going_on = self._session, isinstance(item, ResumedTurnItem)
        if isinstance(item, list) and (met := [prompt for prompt in item if prompt.uuid == self._abort_next]):
            session.prompt_queue.put_back(
                [prompt for prompt in item if prompt not in met]
            )  # the interrupt did not mean them
            item = met
        turn = Turn(
            session.conversation,
            [] if isinstance(item, ResumedTurnItem) else item,
            admit=None if going_on else self._admit,
            start=session.resumed_turn.start if going_on else self._start,
            join=self._join_waiting,
            must_yield=session.prompt_queue.is_urgent,
            resumed_calls=item.calls if isinstance(item, ResumedTurnItem) else None,
        )
        if self._abort_next in [each.uuid for each in ([item] if isinstance(item, ResumedTurnItem) else item)]:
            turn.stop_cause, self._abort_next = StopCause.INTERRUPT, None
        return turn

    async def _run_turn(self, turn: Turn) -> None:
        self._session.send_state("running")
        self.current = turn
        for prompt in turn.prompts:  # now, before another can come that would have gone first
            self._session.prompts.send_lifecycle(prompt, "started")
        task = self._task = asyncio.create_task(self._run_guarded(turn))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self.current = self._task = None
            self._unsent_contexts += turn.hook_feedback.contexts
        self._finish(turn, task.result())

    async def _run_guarded(self, turn: Turn) -> TurnOutcome:
        """Run a turn so that it ends with an outcome, come what may."""
        session = self._session
        try:
            session.ledger.begin_turn()
            with keep_alive(session.conversation):
                await session.control.wait_changes()
                if turn.stop_cause is None:
                    await session.servers.wait_ready()
                self._collect_news(turn)
                if turn.stop_cause is None:
                    await self._expand_commands(turn)
            return await turn.run()
        except SessionError as exc:
            return outcome.failed(str(exc), exc.fault_type)
        except Exception as exc:
            # One result for every turn, also where the fault is ours.
            session.config.warn("".join(traceback.format_exception(exc)))
            self._close_calls_after_bug()
            return outcome.failed(f"internal error: {type(exc).__name__}: {exc}")

    async def _expand_commands(self, turn: Turn) -> None:
        """Let servers say what their commands stand for. An interrupt ends the asking; the turn still begins."""
        turn.is_cancellable = True
        try:
            await self._session.servers.wait_refreshed()
            turn.prompts[:] = await self._session.servers.expand_prompts(turn.prompts)
        except asyncio.CancelledError:
            if turn.stop_cause is None:
                raise
        finally:
            turn.is_cancellable = False

    async def _admit(self, turn: Turn) -> TurnOutcome | None:
        """Let the prompts in, commands as what they stand for; how the turn ends, if that is its end."""
        dispatcher, feedback = self._session.hooks.dispatcher, turn.hook_feedback
        if dispatcher is not None:
            refusal = await dispatcher.turn_hooks.admit(turn.prompts, feedback.contexts, feedback.prompt_contexts)
            if refusal is not None:
                self._session.send_init()
                self._session.send(refusal)
                return outcome.blocked(refusal.content)
        refused = await self._session.commands.expand_turn(turn)
        if refused is None and self._session.main_agent is not None:
            await self._session.main_agent.start_turn(turn)
        return refused

    def _collect_news(self, turn: Turn) -> None:
        """Let the model know what has become of its MCP servers and tasks, and how servers want to be used."""
        session = self._session
        turn.hook_feedback.contexts += self._unsent_contexts
        self._unsent_contexts = []
        if self._orphaned_tasks is not None:
            clock = session.clock
            news = self._orphaned_tasks.unread_texts(
                lambda book: book.report(session.tasks.get_notifications(), clock.seconds, clock.new_uuid)
            )
            # What was left unsaid may be among them: they come again until the conversation has them.
            turn.hook_feedback.contexts += [words for words in news if words not in turn.hook_feedback.contexts]
        asked, self._orphaned_elicitations = self._orphaned_elicitations, None
        if asked is not None:
            turn.hook_feedback.contexts += asked.report(session.journal.append_event, session.send)
        turn.hook_feedback.contexts += session.servers.news_for_model()
        said, conversation = session.servers.instructions(), session.conversation
        if said and session.journal.system_text is None:
            conversation.instructions = msgspec.structs.replace(conversation.instructions, servers=said)

    def _close_calls_after_bug(self) -> None:
        text = "An internal error of the engine ended this call. Its outcome is unknown."
        try:
            self._session.conversation.close_open_calls(text)
        except SessionError as exc:
            self._session.config.warn(str(exc))

    def _start(self, turn: Turn) -> None:
        """Announce a turn and take its prompts into the conversation. Raises ModelError if they can never fit."""
        session = self._session
        session.send(init_message(session))
        session.servers.announce()
        check_not_empty(turn.prompts)
        check_size(turn.prompts, session.conversation.model)
        session.conversation.close_interrupted_calls()
        session.conversation.append_date()
        session.prompts.append(turn.prompts)
        session.permission_mode.append()
        self._record_title()
        session.prompts.echo(turn.prompts)
        if turn.stop_cause is not None:
            return
        if session.main_agent is not None and session.main_agent.error:
            raise SessionError(session.main_agent.error)
        if obstacle := session.servers.find_obstacle():
            raise ToolsMissing(obstacle)

    def _record_title(self) -> None:
        """What the command line calls the session, once it has something in it."""
        title, record = self._session.config.storage.title, self._session.journal
        if title is not None and title != record.title:
            record.append_event("title", {"title": title})

    async def _join_waiting(self, turn: Turn) -> None:
        """Prompts that came while tools ran go into the running turn, before its next model call."""
        session = self._session
        await session.control.wait_changes()
        await session.servers.wait_refreshed()
        joining = session.prompt_queue.take_prompts()
        if joining and session.hooks.dispatcher is not None:
            joining = await self._admit_joining(session.hooks.dispatcher, turn, joining)
        joining = await session.commands.expand_joining(joining)
        if joining:
            session.prompts.append(joining)
            session.send(injected_message(joining, session.config.client.prompt_separator))
            session.prompts.echo(joining)
            for prompt in joining:
                session.prompts.send_lifecycle(prompt, "started")
            turn.prompts += joining

    async def _admit_joining(self, dispatcher: HookDispatcher, turn: Turn, prompts: list[Prompt]) -> list[Prompt]:
        """Run the hooks for prompts that join a running turn. An interrupt puts the prompts back into the queue."""
        session = self._session
        try:
            refusal = await dispatcher.turn_hooks.submit(prompts, turn.hook_feedback.prompt_contexts)
        except asyncio.CancelledError:
            session.prompt_queue.put_back(prompts)
            raise
        if refusal is None:
            return prompts
        session.send(refusal)
        for prompt in prompts:
            session.prompts.send_lifecycle(prompt, "cancelled")
        return []

    def _finish(self, turn: Turn, ended: TurnOutcome, refused_ids: Sequence[str] = ()) -> None:
        """`refused`: the ids of prompts that it was to be about."""
        session = self._session
        session.commands.end_turn()
        session.prompts.append_silent()
        result = result_message(session, turn, ended, refused_ids)
        self.results += 1
        self.last_result = result
        try:
            session.journal.append(result)
        except SessionError as exc:
            session.config.warn(str(exc))
        session.host.send(result)
        for prompt in turn.prompts:
            session.prompts.send_lifecycle(prompt, "cancelled" if ended.is_aborted else "completed")
        if not len(session.prompt_queue):
            session.send_state(session.state)
        if session.suggester is not None:
            session.suggester.start(ended)
        # What was said in a turn that failed or was stopped is looked through with the next one.
        if session.memory_worker is not None and not (ended.is_aborted or ended.is_error):
            session.memory_worker.turn_ended()

    def send_state(self) -> None:
        """Tell how it stands when something beside the turns is over; the end of one that is cut off tells that."""
        if self.current is None or self.current.stop_cause is None:
            self._session.send_state(self._session.state)

    # Cutting short.

    def abort(self) -> None:
        """Stop the running turn, or the one that is about to run."""
        if self.current is None or self._task is None:
            self._abort_next = self._session.prompt_queue.next_uuid()
        else:
            self._stop(self.current, self._task, StopCause.INTERRUPT)

    def cancel_prompt(self, uuid: str) -> None:
        """A prompt is not wanted any more: it is taken back if it waits behind another, else its turn is stopped."""
        session = self._session
        waiting = next((prompt for prompt in session.prompts.list_queued() if prompt.uuid == uuid), None)
        if waiting is not None:
            session.prompts.cancel(waiting)
            return
        session.abort()
        if self.current is not None and uuid not in [prompt.uuid for prompt in self.current.prompts]:
            self._abort_next = uuid  # it was on its way into the turn, and is the next one now

    def forget_prompt(self, uuid: str) -> None:
        """A prompt was taken back: if it comes again, an interrupt from before does not mean it."""
        if self._abort_next == uuid:
            self._abort_next = None

    def yield_to_urgent(self) -> None:
        """A prompt came that will not wait: end the running turn, but let a tool that runs finish its work."""
        turn, task = self.current, self._task
        if turn is None or task is None or not self._session.prompt_queue.is_urgent():
            return
        if (
            not turn.is_running_tools
            or self._session.gate.is_waiting
            or not self._session.tool_executor.in_flight.has_started
        ):
            self._stop(turn, task, StopCause.GIVE_WAY)

    def _stop(self, turn: Turn, task: asyncio.Task[TurnOutcome], reason: StopCause) -> None:
        if turn.stop_cause is None:
            turn.stop_cause = reason
            self._session.servers.stop_waiting()
            if turn.is_cancellable:
                task.cancel()


def load_orphaned_tasks(session: Session) -> OrphanedTasks | None:
    if session.journal.tasks is None:
        return None
    from parley.engine.recovery.orphaned_tasks import OrphanedTasks

    return OrphanedTasks(session.journal.tasks)
