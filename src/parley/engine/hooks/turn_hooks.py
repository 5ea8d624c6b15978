"""The hooks around a turn: before its prompts are taken in, behind a batch of calls, before it ends."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from parley.engine.hooks.tool_hooks import model_contexts
from parley.engine.session.prompt_queue import Prompt, join_content
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import keep_alive
from parley.engine.turn.outcome import TurnOutcome
from parley.errors import ModelError
from parley.hooks.base import format_context
from parley.hooks.merge import HookVerdict
from parley.hooks.output import shorten
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.system import Informational
from parley.tools.base import ToolOutput

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import HookDispatcher
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn

MAX_STOPS = 8
"""So often hooks may keep a turn from ending. One that always objects would keep it for ever."""
SESSION_END_SECONDS = 2.0
"""Clients wait five for the process to end, and commands that are ended may take two."""
MAX_TEXT_CHARS = 1000


class TurnEndOpinion(Struct, frozen=True, kw_only=True):
    """What hooks say where a turn could end."""

    contexts: tuple[str, ...] = ()
    feedback: str | None = None
    """What makes the model go on."""
    stop_reason: str | None = None
    """Why the turn is to end here, if it is."""


class TurnHooks:
    def __init__(self, dispatcher: HookDispatcher, session: Session) -> None:
        self._dispatcher = dispatcher
        self._session = session
        self._has_started = False

    async def _fire(self, event: str, details: Json, *, agent: Json | None = None, **how: Any) -> HookVerdict:
        """Ask, and give signs of life meanwhile; for a subagent the call does that which it works for."""
        with (
            nullcontext()
            if agent is not None
            else keep_alive(self._session.send, self._session.limits.heartbeat_seconds)
        ):
            return await self._dispatcher.fire(event, details, agent=agent, **how)

    # The beginning.

    async def admit(self, turn: Turn) -> TurnOutcome | None:
        """Ask about the prompts of a turn before anything is done with them; how it ends, if that is its end."""
        dispatcher = self._dispatcher
        dispatcher.prompt_id = turn.prompts[0].uuid
        turn.hook_feedback.contexts += dispatcher.take_late_contexts()
        if not self._has_started:
            turn.hook_feedback.contexts += await self._start()
            self._has_started = True  # an interrupt before this line leaves it to the next turn
        refusal = await self.submit(turn.prompts, turn.hook_feedback.prompt_contexts)
        if refusal is None:
            return None
        self._session.send_init()
        self._session.send(refusal)
        return outcome.blocked(refusal.content)

    async def _start(self) -> tuple[str, ...]:
        """The session begins. Callbacks are not asked: a host knows that it has just started us."""
        source = self._session.config.storage.start_source
        details = {"source": source, "model": self._session.conversation.model.display_name}
        verdict = await self._fire("SessionStart", details, among=self._dispatcher.commands)
        return model_contexts(f"SessionStart:{source}", verdict)

    async def submit(self, prompts: list[Prompt], contexts: list[str]) -> Informational | None:
        """Ask about prompts; the line that tells of it if they are blocked. `said` takes what the model is to hear."""
        people = [prompt for prompt in prompts if not prompt.is_notification]
        if not people or not self._dispatcher.has_hooks("UserPromptSubmit"):
            return None
        text = "\n".join(str(block["text"]) for block in join_content(people) if block.get("type") == "text")
        verdict = await self._fire("UserPromptSubmit", {"prompt": text})
        why = verdict.blocked if verdict.blocked is not None else verdict.stopped
        if why is None:
            contexts += [format_context("UserPromptSubmit", context) for context in verdict.contexts]
            return None
        content = f"UserPromptSubmit operation blocked by hook:\n{why}\n\nOriginal prompt: {shorten(text)}"
        how: Json = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": why}
        return Informational(content=content, level="warning", prevent_continuation=True, prompt_submit_outcome=how)

    async def admit_joining(self, turn: Turn, prompts: list[Prompt]) -> list[Prompt]:
        """Ask about prompts that join a running turn; those that may. An interrupt puts them back in their line."""
        try:
            refusal = await self.submit(prompts, turn.hook_feedback.prompt_contexts)
        except asyncio.CancelledError:
            self._session.prompt_queue.put_back(prompts)
            raise
        if refusal is None:
            return prompts
        self._session.send(refusal)
        for prompt in prompts:
            self._session.prompts.send_lifecycle(prompt, "cancelled")
        return []

    # The middle.

    async def after_batch(self, done: list[tuple[ToolUse, ToolOutput]], agent: Json | None) -> TurnEndOpinion:
        """All calls of one answer have their results."""
        calls = [
            {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, "tool_response": result.content}
            for call, result in done
        ]
        id = f"hook-{self._dispatcher.new_id()}"
        verdict = await self._fire("PostToolBatch", {"tool_calls": calls}, tool_use_id=id, agent=agent)
        said = (*self._dispatcher.take_late_contexts(), *model_contexts("PostToolBatch", verdict))
        return TurnEndOpinion(contexts=said, stop_reason=verdict.stopped)

    async def start_subagent(self, agent: Json) -> tuple[str, ...]:
        """A subagent begins; what it is to hear."""
        verdict = await self._dispatcher.fire("SubagentStart", {}, subjects=(agent["agent_type"],), agent=agent)
        return model_contexts("SubagentStart", verdict)

    async def before_display(self, turn_id: str, text: str) -> None:
        """A text of the model is about to be told."""
        id = self._dispatcher.new_id()
        details = {"turn_id": turn_id, "message_id": id, "index": 0, "final": True, "delta": text}
        await self._dispatcher.fire("MessageDisplay", details, tool_use_id=f"{id}-0")

    # The end.

    async def before_stop(
        self, text: str, stops: int, agent: Json | None = None, transcript: str = ""
    ) -> TurnEndOpinion:
        """The model asks for nothing more: ask whether that is the end. `stops` times it was not.

        `agent` is the subagent whose end it is, and `transcript` where its transcript is."""
        event = "Stop" if agent is None else "SubagentStop"
        details: Json = {
            "stop_hook_active": stops > 0,
            **({} if agent is None else {"agent_transcript_path": transcript}),
            "last_assistant_message": text,
            "background_tasks": self._list_tasks(),
            "session_crons": [],
        }
        subjects = () if agent is None else (agent["agent_type"],)
        verdict = await self._fire(event, details, subjects=subjects, agent=agent)
        said = [*([verdict.blocked] if verdict.blocked is not None else []), *verdict.contexts]
        if verdict.stopped is not None or not said:
            return TurnEndOpinion(stop_reason=verdict.stopped)
        if stops >= MAX_STOPS:
            self._dispatcher.warn(f"hooks of {event} kept the turn from ending {stops} times; it ends now")
            return TurnEndOpinion()
        return TurnEndOpinion(feedback=format_context(event, "\n".join(said)))

    def _list_tasks(self) -> list[Json]:
        """What runs in the background."""
        found = [self._session.tasks.find(id) for id in self._session.tasks.ids()]
        return [
            {
                "id": task.id,
                "type": task.kind,
                "status": task.status,
                "description": task.description[:MAX_TEXT_CHARS],
                **({"command": task.command[:MAX_TEXT_CHARS]} if task.command else {}),
            }
            for task in found
            if task is not None and task.in_background and not task.finished.is_set()
        ]

    async def report_failure(self, error: ModelError) -> None:
        """A turn ended because the model failed."""
        text = outcome.error_text(error)
        details = {"error": outcome.error_name(error), "error_details": text, "last_assistant_message": text}
        await self._fire("StopFailure", details)

    async def end_session(self, reason: str) -> None:
        """The session is over. Nobody waits long for those who want to hear of it."""
        dispatcher = self._dispatcher
        try:
            async with asyncio.timeout(SESSION_END_SECONDS):
                await dispatcher.fire("SessionEnd", {"reason": reason}, among=dispatcher.list_reachable())
        except TimeoutError:
            dispatcher.warn(f"hooks of SessionEnd were ended after {SESSION_END_SECONDS:g} s")
        finally:
            await dispatcher.close()
