"""Runs the turns of a session, one after the other: admit, begin, loop, end.

    run()                until the input has ended and nothing waits
    abort()              stop the running turn, or the next one
    cancel_prompt()      cancel a waiting prompt, or stop its turn
    yield_to_urgent()    stop the running turn for an urgent prompt; a running tool may finish

See also: `turn.py` makes the steps of a turn, `session/prompts.py` appends prompts to the conversation.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from parley.engine.session.outbox import StatusHeartbeat
from parley.engine.session.prompts import (
    Prompt,
    RejectedPrompt,
    ResumedTurnItem,
    check_not_empty,
    check_size,
    injected_message,
)
from parley.engine.turn import outcome
from parley.engine.turn.outcome import StopCause, TurnOutcome
from parley.errors import SessionError, ToolsMissing
from parley.protocol.base import UNSET, UnsetType
from parley.protocol.messages.result import ModelUsage, Result
from parley.workspace.base import WORKTREES

if TYPE_CHECKING:
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn


class TurnRunner:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.current: Turn | None = None
        self._task: asyncio.Task[TurnOutcome] | None = None
        self._is_ending = False
        """The last turn has ended, and its result is about to be sent."""
        self._has_warned_of_costs = False
        self.results = 0
        self.last_result: Result | None = None
        self._unsent_contexts: list[str] = []
        """Contexts of turns that did not call the model."""

    async def run(self) -> None:
        """Run turn after turn until the input has ended and nothing waits."""
        session, merge = self._session, False
        self._sweep_worktrees()
        while (item := await self._next_item(merge)) is not None:
            if isinstance(item, RejectedPrompt):
                session.ledger.begin_turn()
                refused = outcome.failed(f"The prompt was refused: {item.reason}", "validation_error")
                await self._end(self._make_turn([]), refused, [] if item.uuid is None else [item.uuid])
            else:
                turn = self._make_turn(item)
                await self._end(turn, await self._run_task(turn))
            # Prompts that arrived during that turn make up the next one together.
            merge = session.config.client.merge_prompts and len(session.prompt_queue) > 0

    def _sweep_worktrees(self) -> None:
        """Remove the unchanged worktrees of agents whose engine was killed."""
        config = self._session.config
        has_any = config.is_remote or os.path.isdir(os.path.join(config.cwd, *WORKTREES))
        if config.storage.start_source == "resume" and has_any:
            self._session.get_subagents().worktrees.sweep_soon()

    async def _next_item(self, merge: bool) -> list[Prompt] | RejectedPrompt | ResumedTurnItem | None:
        """The next prompts. At the end of the input, background tasks may still add some."""
        session = self._session
        while (item := await session.prompt_queue.take(merge)) is None:
            if not await session.tasks.wait_any(session.limits.background_wait_seconds):
                if session.memory_worker is not None:
                    await session.memory_worker.wait_idle(session.limits.background_wait_seconds)
                return None
        return item

    def _make_turn(self, item: list[Prompt] | ResumedTurnItem) -> Turn:
        from parley.engine.turn.turn import Turn  # with the first prompt: `initialize` is answered without it

        session = self._session
        if isinstance(item, ResumedTurnItem):
            turn = Turn(session.conversation, [], prompt_queue=session.prompt_queue, resumed=item)
            is_aborted = item.uuid == session.prompt_queue.abort_next
        else:
            aborted = [prompt for prompt in item if prompt.uuid == session.prompt_queue.abort_next]
            if aborted:  # the interrupt was not for the others
                session.prompt_queue.put_back([prompt for prompt in item if prompt not in aborted])
            turn = Turn(session.conversation, aborted or item, prompt_queue=session.prompt_queue)
            is_aborted = bool(aborted)
        if is_aborted:
            turn.stop_cause, session.prompt_queue.abort_next = StopCause.INTERRUPT, None
        return turn

    async def _run_task(self, turn: Turn) -> TurnOutcome:
        """Run a turn in a task of its own, which an interrupt cancels."""
        session = self._session
        self.current = turn
        session.activity.start_turn(is_stopping=turn.stop_cause is not None)
        for prompt in turn.prompts:  # now, before a more urgent one arrives
            session.prompts.send_lifecycle(prompt, "started")
        task = self._task = asyncio.create_task(self._run_turn(turn))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self.current = self._task = None
            session.activity.end_turn()
            self._unsent_contexts += turn.hook_feedback.contexts
        return task.result()

    async def _run_turn(self, turn: Turn) -> TurnOutcome:
        """Admit, begin, loop. Every turn has an outcome, whatever goes wrong."""
        try:
            await self._prepare(turn)
            async with turn.running():
                # Admit: a hook may refuse the prompts, a command may answer them.
                refused = await self._admit(turn)
                if refused is not None:
                    turn.end(refused)
                    return refused
                # Begin: announce the turn and append its prompts.
                self._begin(turn)
                await turn.begin()
                # Loop: the model answers and its tools run, until it asks for nothing.
                ended = find_recorded_outcome(turn) or await turn.step()
                while ended is None:
                    await self._join_waiting(turn)
                    ended = await turn.step()
                turn.end(ended)
            return turn.outcome
        except SessionError as exc:
            return outcome.failed(str(exc), exc.fault_type, self._failure_reason(turn))
        except Exception as exc:
            # A bug of ours ends the turn with a result, too.
            self._session.config.warn("".join(traceback.format_exception(exc)))
            self._close_calls_after_bug()
            reason = self._failure_reason(turn)
            return outcome.failed(f"internal error: {type(exc).__name__}: {exc}", terminal_reason=reason)

    def _failure_reason(self, turn: Turn) -> str | UnsetType:
        """The terminal reason of a turn that failed before or in a model call; none for other failures."""
        if turn.model_call.has_bug:
            return "model_error"
        return UNSET if turn.model_call_count or turn.resumed else "turn_setup_failed"

    async def _prepare(self, turn: Turn) -> None:
        """Wait for servers and file changes, collect what the model has to know, and expand commands."""
        session = self._session
        session.ledger.begin_turn()
        with StatusHeartbeat(session.outbox.send, session.limits.heartbeat_seconds):
            await session.control.wait_changes()
            if turn.stop_cause is None:
                await session.servers.wait_ready()
            self._collect_news(turn)
            if turn.stop_cause is None:
                with interruptible(turn):
                    await session.servers.wait_refreshed()
                    turn.prompts[:] = await session.servers.expand_prompts(turn.prompts)

    async def _admit(self, turn: Turn) -> TurnOutcome | None:
        """The outcome if hooks refuse the prompts, or a command answers them."""
        session, feedback = self._session, turn.hook_feedback
        if turn.resumed is not None:
            return self._find_missing_tool(turn)
        if turn.stop_cause is not None:
            return None
        refused = None
        with interruptible(turn):
            refusal = await session.hooks.events.admit(turn.prompts, feedback.contexts, feedback.prompt_contexts)
            if refusal is not None:
                session.send_init()
                session.outbox.send(refusal)
                return outcome.blocked(refusal.content)
            refused = await session.commands.expand_turn(turn)
            if refused is None and session.main_agent is not None:
                await session.main_agent.start_turn(turn)
        return refused

    def _find_missing_tool(self, turn: Turn) -> TurnOutcome | None:
        """The outcome if the tool of a deferred call is gone."""
        session, deferred = self._session, self._session.journal.deferred_calls
        calls = [call for call in turn.resumed_calls if call.id in deferred]
        gone = [call for call in calls if not session.tool_executor.has_tool(call.name)]
        if not gone:
            return None
        session.send_init()
        session.conversation.close_interrupted_calls()
        return outcome.deferred_unavailable(gone[0].name)

    def _collect_news(self, turn: Turn) -> None:
        """Collect news about MCP servers and tasks, and the instructions of servers, for the model."""
        session = self._session
        turn.hook_feedback.contexts += self._unsent_contexts
        self._unsent_contexts = []
        turn.hook_feedback.contexts += session.report_losses()
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

    def _begin(self, turn: Turn) -> None:
        """Announce the turn and append its prompts. Raises ModelError if they can never fit, or SessionError."""
        session, conversation = self._session, self._session.conversation
        session.send_init()
        session.servers.announce()
        if turn.reply is not None:
            conversation.send(turn.reply)
        if session.journal.goal is not None:
            from parley.engine.goal import SessionGoal

            SessionGoal(conversation).announce()
        if turn.resumed is not None:
            self._continue(turn, turn.resumed)
        else:
            check_not_empty(turn.prompts)
            check_size(turn.prompts, conversation.model, conversation.config.model.get_info(conversation.model))
            conversation.close_interrupted_calls()
            conversation.append_date()
            if not session.journal.history.list_entries():
                conversation.append_contexts(conversation.excluded_facts())
            conversation.append_contexts(self._list_changes())
            session.prompts.append(turn.prompts)
            session.permission_mode.append()
            self._record_title()
            session.prompts.echo(turn.prompts)
        if turn.stop_cause is not None:
            return
        if turn.resumed is None and session.main_agent is not None and session.main_agent.error:
            raise SessionError(session.main_agent.error)
        if obstacle := session.servers.find_obstacle():
            raise ToolsMissing(obstacle)

    def _list_changes(self) -> list[str]:
        """What the model has to know of changes of the mode and the model since it was called last."""
        session = self._session
        mode_news = session.declared.mode_news(session.mode, session.conversation.tool_context)
        return mode_news + session.conversation.model_news()

    def _continue(self, turn: Turn, resumed: ResumedTurnItem) -> None:
        """Prepare the conversation for the next step of a turn that an earlier engine started. Raises SessionError."""
        from parley.engine.session.recover import CONTINUE, CONTINUED, resend_client_calls

        session, conversation = self._session, self._session.conversation
        if resumed.prompt_ids and not turn.resumed_calls:
            session.journal.append_event(CONTINUED, {})
        conversation.close_interrupted_calls(excluded=turn.resumed_calls, shows=bool(resumed.prompt_ids))
        resend_client_calls(turn.resumed_calls, session.journal, session.outbox)
        entries = session.journal.history.list_entries()
        if not turn.resumed_calls and resumed.answer is None and entries and entries[-1].role == "assistant":
            conversation.append_contexts([CONTINUE])

    def _record_title(self) -> None:
        """Journal the title from the command line or the client, once the session has a prompt."""
        record, config = self._session.journal, self._session.config
        title = " ".join((config.options.name or "").split())
        if not title and record.title is None and config.storage.start_source == "startup":
            title = self._session.declared.title
        if title and title != record.title:
            record.append_event("title", {"title": title})

    async def _join_waiting(self, turn: Turn) -> None:
        """Add prompts that arrived during the tool calls to the turn, before its next model call."""
        session = self._session
        await session.control.wait_changes()
        await session.servers.wait_refreshed()
        turn.hook_feedback.contexts += self._list_changes()
        joining = session.prompt_queue.take_prompts()
        if not joining:
            return
        joining = await session.commands.expand_joining(await self._admit_joining(turn, joining))
        if joining:
            session.prompts.append(joining)
            session.outbox.send(injected_message(joining, session.config.client.prompt_separator))
            session.prompts.echo(joining)
            for prompt in joining:
                session.prompts.send_lifecycle(prompt, "started")
            turn.prompts += joining

    async def _admit_joining(self, turn: Turn, prompts: list[Prompt]) -> list[Prompt]:
        """Run the hooks for prompts that join a running turn. An interrupt puts the prompts back into the queue."""
        session = self._session
        try:
            refusal = await session.hooks.events.submit(prompts, turn.hook_feedback.prompt_contexts)
        except asyncio.CancelledError:
            session.prompt_queue.put_back(prompts)
            raise
        if refusal is None:
            return prompts
        session.outbox.send(refusal)
        for prompt in prompts:
            session.prompts.send_lifecycle(prompt, "cancelled")
        return []

    async def _end(self, turn: Turn, ended: TurnOutcome, refused_ids: Sequence[str] = ()) -> None:
        """Send the one result of a turn. `refused_ids` are the prompts that could not be read."""
        session = self._session
        session.commands.end_turn()
        session.append_silent()
        result = self.last_result = self._make_result(turn, ended, refused_ids)
        self.results += 1
        try:
            session.journal.append(result)
            self._is_ending = True
            await session.journal.wait_synced()
        except SessionError as exc:
            session.config.warn(str(exc))
        finally:
            self._is_ending = False
        session.outbox.send_raw(result)
        for prompt in turn.prompts:
            session.prompts.send_lifecycle(prompt, "cancelled" if ended.is_aborted else "completed")
        if not len(session.prompt_queue):
            session.activity.send()
        if session.suggester is not None:
            session.suggester.start(ended)
        # The memory reads a turn that failed or was stopped together with the next one.
        if session.memory_worker is not None and not (ended.is_aborted or ended.is_error):
            session.memory_worker.turn_ended()

    def _report_cost(self, usd: float | None) -> float | None:
        """The cost as the client takes it. Its programs may fail if it is not a number."""
        config = self._session.config
        if usd is not None or not config.client.needs_costs:
            return usd
        if not self._has_warned_of_costs:
            self._has_warned_of_costs = True
            config.warn("warning: costs are reported as 0 because the price of a model is not known")
        return 0

    def _report_costs(self, used: dict[str, ModelUsage]) -> dict[str, ModelUsage]:
        return {
            model: msgspec.structs.replace(usage, costUSD=self._report_cost(usage.costUSD))
            for model, usage in used.items()
        }

    def _make_result(self, turn: Turn, ended: TurnOutcome, refused_ids: Sequence[str]) -> Result:
        """The result of a turn, with all its numbers."""
        session, conversation = self._session, turn.conversation
        ledger, clock = conversation.ledger, conversation.clock
        has_called_model = turn.model_call_count > 0
        resumed_ids = [] if turn.resumed is None else turn.resumed.prompt_ids
        answered_id, prompt_ids = turn.model_call.marks.name_prompts([*resumed_ids, *refused_ids])
        origin = next((prompt.origin for prompt in turn.prompts if prompt.origin), None)
        timings = turn.model_call.timings.since(turn.started_at, has_client_uuid=bool(prompt_ids))
        if ended.subtype != "success":
            timings = {"ttft_ms": timings["ttft_ms"]} if "ttft_ms" in timings else {}
        return Result(
            session_id=conversation.config.identity.id,
            uuid=clock.new_uuid(),
            subtype=ended.subtype,
            is_error=ended.is_error,
            duration_ms=round((clock.monotonic() - turn.started_at) * 1000),
            duration_api_ms=round(ledger.api_seconds * 1000),
            # The model call that the limit prevented counts too, as clients expect.
            num_turns=turn.num_turns + (ended.terminal_reason == "max_turns"),
            result=ended.text,
            stop_reason=ended.stop_reason,
            terminal_reason=ended.terminal_reason,
            total_cost_usd=self._report_cost(ledger.cost_usd),
            usage=ledger.turn_usage,
            modelUsage=self._report_costs(ledger.by_model()),
            model_usage_since_last_result=self._report_costs(ledger.by_model_this_turn()) if has_called_model else {},
            permission_denials=turn.tool_batch.denials,
            errors=ended.errors,
            structured_output=ended.structured_output,
            structured_output_report=ended.structured_output_report,
            deferred_tool_use=ended.deferred_tool_use,
            api_error_status=ended.api_error_status,
            api_error_type=ended.api_error_type,
            api_error=ended.api_error,
            fault_type=ended.fault_type,
            local_command=ended.local_command,
            origin=origin or UNSET,
            **timings,
            resume_reason=turn.resume_reason,
            user_message_uuid=answered_id,
            user_message_uuids=prompt_ids or UNSET,
            fast_mode_state="off",
            subagent_stats=UNSET if session.subagents is None else session.subagents.stats.json(),
            queued_turn_count=len(session.prompt_queue),
            result_index=self.results,
        )

    # Stop.

    def abort(self) -> None:
        """Stop the running turn, or the next one."""
        if self._is_ending:
            return
        if self.current is None or self._task is None:
            self._session.prompt_queue.abort_next = self._session.prompt_queue.next_uuid()
        else:
            self._stop(self.current, self._task, StopCause.INTERRUPT)

    def cancel_prompt(self, uuid: str) -> None:
        """Cancel a prompt that waits, or stop its turn."""
        session = self._session
        waiting = next((prompt for prompt in session.prompts.list_queued() if prompt.uuid == uuid), None)
        if waiting is not None:
            session.prompts.cancel(waiting)
            return
        session.abort()
        if self.current is not None and uuid not in [prompt.uuid for prompt in self.current.prompts]:
            session.prompt_queue.abort_next = uuid  # it was about to join the turn, and is the next one now

    def yield_to_urgent(self) -> None:
        """Stop the running turn if an urgent prompt waits. A running tool may finish."""
        turn, task = self.current, self._task
        if turn is None or task is None or not self._session.prompt_queue.is_urgent():
            return
        if (
            not turn.is_running_tools
            or self._session.activity.is_waiting
            or not self._session.tool_executor.in_flight.has_started
        ):
            self._stop(turn, task, StopCause.GIVE_WAY)

    def _stop(self, turn: Turn, task: asyncio.Task[TurnOutcome], reason: StopCause) -> None:
        if turn.stop_cause is None:
            turn.stop_cause = reason
            self._session.activity.is_stopping = True
            self._session.servers.stop_waiting()
            if turn.is_cancellable:
                task.cancel()


@contextmanager
def interruptible(turn: Turn) -> Iterator[None]:
    """An interrupt ends the body; the turn still begins."""
    turn.is_cancellable = True
    try:
        yield
    except asyncio.CancelledError:
        if turn.stop_cause is None:
            raise
    finally:
        turn.is_cancellable = False


def find_recorded_outcome(turn: Turn) -> TurnOutcome | None:
    """The outcome of a turn of an earlier engine whose last answer was complete, or that is not continued again."""
    if turn.resumed is not None and turn.resumed.is_given_up:
        from parley.engine.session.recover import GIVEN_UP

        return outcome.failed(GIVEN_UP)
    if turn.resumed is None or turn.resumed.answer is None or turn.conversation.output_schema is not None:
        return None
    return outcome.completed(*turn.resumed.answer)
