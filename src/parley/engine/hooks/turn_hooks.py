"""The hooks around a turn: before its prompts are taken in, behind a batch of calls, before it ends."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from parley.engine.hooks.tool_hooks import contexts
from parley.engine.session.messages import init_line
from parley.engine.session.prompt_queue import Prompt, join
from parley.engine.turn import outcome
from parley.engine.turn.heartbeat import signs_of_life
from parley.engine.turn.outcome import Outcome
from parley.errors import ModelError
from parley.hooks.base import context_text
from parley.hooks.merge import Verdict
from parley.hooks.output import shortened
from parley.protocol.base import Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.system import Informational
from parley.tools.base import Result

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import Hooking
    from parley.engine.session.session import Session
    from parley.engine.turn.turn import Turn

MOST_STOPS = 8
"""So often hooks may keep a turn from ending. One that always objects would keep it for ever."""
SESSION_END_SECONDS = 2.0
"""Clients wait five for the process to end, and commands that are ended may take two."""
MOST_TEXT_CHARS = 1000


class Ending(Struct, frozen=True, kw_only=True):
    """What hooks say where a turn could end."""

    contexts: tuple[str, ...] = ()
    feedback: str | None = None
    """What makes the model go on."""
    stopped: str | None = None
    """Why the turn is to end here, if it is."""


class TurnHooks:
    def __init__(self, live: Hooking, session: Session) -> None:
        self._live = live
        self._session = session
        self._has_started = False

    async def _fire(self, event: str, details: Json, *, agent: Json | None = None, **how: Any) -> Verdict:
        """Ask, and give signs of life meanwhile; for a subagent the call does that which it works for."""
        with nullcontext() if agent is not None else signs_of_life(self._session.conversation):
            return await self._live.fire(event, details, agent=agent, **how)

    # The beginning.

    async def admit(self, turn: Turn) -> Outcome | None:
        """Ask about the prompts of a turn before anything is done with them; how it ends, if that is its end."""
        live = self._live
        live.prompt_id = turn.prompts[0].uuid
        turn.hearing.contexts += live.take_late()
        if not self._has_started:
            turn.hearing.contexts += await self._start()
            self._has_started = True  # an interrupt before this line leaves it to the next turn
        refusal = await self.submit(turn.prompts, turn.hearing.about_prompts)
        if refusal is None:
            return None
        self._session.tell(init_line(self._session))
        self._session.tell(refusal)
        return outcome.blocked(refusal.content)

    async def _start(self) -> tuple[str, ...]:
        """The session begins. Callbacks are not asked: a host knows that it has just started us."""
        source = self._session.setup.begins_as
        details = {"source": source, "model": self._session.conversation.model.shown}
        verdict = await self._fire("SessionStart", details, among=self._live.commands)
        return contexts(f"SessionStart:{source}", verdict)

    async def submit(self, prompts: list[Prompt], said: list[str]) -> Informational | None:
        """Ask about prompts; the line that tells of it if they are blocked. `said` takes what the model is to hear."""
        people = [prompt for prompt in prompts if not prompt.is_notification]
        if not people or not self._live.wants("UserPromptSubmit"):
            return None
        text = "\n".join(str(block["text"]) for block in join(people) if block.get("type") == "text")
        verdict = await self._fire("UserPromptSubmit", {"prompt": text})
        why = verdict.blocked if verdict.blocked is not None else verdict.stopped
        if why is None:
            said += [context_text("UserPromptSubmit", context) for context in verdict.contexts]
            return None
        content = f"UserPromptSubmit operation blocked by hook:\n{why}\n\nOriginal prompt: {shortened(text)}"
        how: Json = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": why}
        return Informational(content=content, level="warning", prevent_continuation=True, prompt_submit_outcome=how)

    async def let_in(self, turn: Turn, prompts: list[Prompt]) -> list[Prompt]:
        """Ask about prompts that join a running turn; those that may. An interrupt puts them back in their line."""
        try:
            refusal = await self.submit(prompts, turn.hearing.about_prompts)
        except asyncio.CancelledError:
            self._session.inbox.put_back(prompts)
            raise
        if refusal is None:
            return prompts
        self._session.tell(refusal)
        for prompt in prompts:
            self._session.prompts.report(prompt, "cancelled")
        return []

    # The middle.

    async def after_batch(self, done: list[tuple[ToolUse, Result]], agent: Json | None) -> Ending:
        """All calls of one answer have their results."""
        calls = [
            {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, "tool_response": result.content}
            for call, result in done
        ]
        id = f"hook-{self._live.new_id()}"
        verdict = await self._fire("PostToolBatch", {"tool_calls": calls}, tool_use_id=id, agent=agent)
        said = (*self._live.take_late(), *contexts("PostToolBatch", verdict))
        return Ending(contexts=said, stopped=verdict.stopped)

    async def start_agent(self, agent: Json) -> tuple[str, ...]:
        """A subagent begins; what it is to hear."""
        verdict = await self._live.fire("SubagentStart", {}, subjects=(agent["agent_type"],), agent=agent)
        return contexts("SubagentStart", verdict)

    async def show(self, turn_id: str, text: str) -> None:
        """A text of the model is about to be told."""
        id = self._live.new_id()
        details = {"turn_id": turn_id, "message_id": id, "index": 0, "final": True, "delta": text}
        await self._live.fire("MessageDisplay", details, tool_use_id=f"{id}-0")

    # The end.

    async def may_end(self, text: str, stops: int, agent: Json | None = None, transcript: str = "") -> Ending:
        """The model asks for nothing more: ask whether that is the end. `stops` times it was not.

        `agent` is the subagent whose end it is, and `transcript` where its transcript is."""
        event = "Stop" if agent is None else "SubagentStop"
        details: Json = {
            "stop_hook_active": stops > 0,
            **({} if agent is None else {"agent_transcript_path": transcript}),
            "last_assistant_message": text,
            "background_tasks": self._tasks(),
            "session_crons": [],
        }
        subjects = () if agent is None else (agent["agent_type"],)
        verdict = await self._fire(event, details, subjects=subjects, agent=agent)
        said = [*([verdict.blocked] if verdict.blocked is not None else []), *verdict.contexts]
        if verdict.stopped is not None or not said:
            return Ending(stopped=verdict.stopped)
        if stops >= MOST_STOPS:
            self._live.complain(f"hooks of {event} kept the turn from ending {stops} times; it ends now")
            return Ending()
        return Ending(feedback=context_text(event, "\n".join(said)))

    def _tasks(self) -> list[Json]:
        """What runs in the background."""
        found = [self._session.tasks.find(id) for id in self._session.tasks.ids()]
        return [
            {
                "id": task.id,
                "type": task.kind,
                "status": task.status,
                "description": task.description[:MOST_TEXT_CHARS],
                **({"command": task.command[:MOST_TEXT_CHARS]} if task.command else {}),
            }
            for task in found
            if task is not None and task.in_background and not task.over.is_set()
        ]

    async def tell_failure(self, flaw: ModelError) -> None:
        """A turn ended because the model failed."""
        text = outcome.error_text(flaw)
        details = {"error": outcome.error_name(flaw), "error_details": text, "last_assistant_message": text}
        await self._fire("StopFailure", details)

    async def end(self, reason: str) -> None:
        """The session is over. Nobody waits long for those who want to hear of it."""
        live = self._live
        try:
            async with asyncio.timeout(SESSION_END_SECONDS):
                await live.fire("SessionEnd", {"reason": reason}, among=live.reachable())
        except TimeoutError:
            live.complain(f"hooks of SessionEnd were ended after {SESSION_END_SECONDS:g} s")
        finally:
            await live.close()
