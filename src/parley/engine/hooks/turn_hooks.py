"""The hooks around a turn: before its prompts are accepted, after a batch of tool calls, before it ends.

See also: `runner.py` runs the hooks, `turn/turn.py` collects what they say during a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from parley.engine.hooks.registry import HookEffect
from parley.engine.hooks.session_hooks import SessionHooks, find_last_response, resume_facts
from parley.engine.hooks.tool_hooks import model_contexts
from parley.engine.session.outbox import StatusHeartbeat
from parley.engine.session.prompts import Prompt, join_content
from parley.engine.turn import outcome
from parley.errors import ModelError
from parley.hooks.base import Hook, format_context
from parley.hooks.merge import HookVerdict
from parley.hooks.output import shorten
from parley.models.catalog import resolve
from parley.protocol.base import Json
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.system import Informational
from parley.tools.base import ToolOutput

MAX_STOPS = 8
"""How often hooks can keep a turn from ending, so that one that always objects cannot block it forever."""
SESSION_END_SECONDS = 2.0
"""Clients wait five seconds for the process to exit, and stopping commands can take two."""
MAX_TEXT_CHARS = 1000


class HookDispatcher(SessionHooks):
    """The events of a session with hooks."""

    _has_started = False

    async def _fire(self, event: str, details: Json, *, agent: Json | None = None, **how: Any) -> HookVerdict:
        """Fire an event and send heartbeats while its hooks run. For a subagent, its caller sends them."""
        with nullcontext() if agent is not None else self._keep_alive():
            return await self.fire(event, details, agent=agent, **how)

    def _keep_alive(self) -> StatusHeartbeat:
        return StatusHeartbeat(self.outbox.send, self.config.limits.heartbeat_seconds)

    # Start.

    async def admit(
        self, prompts: list[Prompt], contexts: list[str], prompt_contexts: list[str]
    ) -> Informational | None:
        self.prompt_id = prompts[0].uuid
        contexts += self.take_late_contexts()
        if not self._has_started:
            contexts += await self._start(prompts)
            self._has_started = True  # after an interrupt before this line, the next turn does it
        return await self.submit(prompts, prompt_contexts)

    async def _start(self, prompts: list[Prompt]) -> tuple[str, ...]:
        """Fire SessionStart. Callbacks are left out: the client has just started the session itself."""
        source = self.config.storage.start_source
        among = [*self.registry.extensions, *self.registry.commands]
        with self._keep_alive():
            verdict = await self.start_session(source, among)
        await self.report_instructions("session_start")
        if first := verdict.fields.get("initialUserMessage"):
            content = [{"type": "text", "text": first}]
            prompts.insert(0, Prompt(content=content, uuid=self.new_id(), verbatim=True))
        return model_contexts(f"SessionStart:{source}", verdict)

    async def start_session(self, source: str, among: Sequence[Hook] | None = None) -> HookVerdict:
        """Fire SessionStart, and do what its hooks say about the session."""
        details: Json = {"source": source, "model": self.conversation.model.display_name, **self._title_field()}
        if source in ("resume", "fork") and self.has_hooks("SessionStart"):
            config = self.config
            last = find_last_response(config.storage.log)
            details |= resume_facts(last, config.clock.seconds(), resolve(config.model.name), config.model.prices)
        verdict = await self.fire("SessionStart", details, among=among)
        if title := verdict.fields.get("sessionTitle"):
            self.conversation.journal.append_event("title", {"title": title})
        if verdict.fields.get("reloadSkills"):
            self._slash_commands.reload()
        self.watch_from(verdict)
        return verdict

    def _title_field(self) -> Json:
        title = self.conversation.journal.title
        return {} if title is None else {"session_title": title}

    async def submit(self, prompts: list[Prompt], contexts: list[str]) -> Informational | None:
        typed = [prompt for prompt in prompts if not prompt.is_notification]
        if not typed or not self.has_hooks("UserPromptSubmit"):
            return None
        text = "\n".join(str(block["text"]) for block in join_content(typed) if block.get("type") == "text")
        verdict = await self._fire("UserPromptSubmit", {"prompt": text, "source": "sdk", **self._title_field()})
        why = verdict.blocked if verdict.blocked is not None else verdict.stopped
        if title := verdict.fields.get("sessionTitle"):
            self.conversation.journal.append_event("title", {"title": title})
        if why is None:
            contexts += [format_context("UserPromptSubmit", context) for context in verdict.contexts]
            return None
        original = "" if verdict.fields.get("suppressOriginalPrompt") else f"\n\nOriginal prompt: {shorten(text)}"
        content = f"UserPromptSubmit operation blocked by hook:\n{why}{original}"
        how: Json = {"kind": "blocked_by_hook", "prompt_kept": False, "reason": why}
        return Informational(content=content, level="warning", prevent_continuation=True, prompt_submit_outcome=how)

    # During the turn.

    async def after_batch(self, done: list[tuple[ToolUse, ToolOutput]], agent: Json | None) -> HookEffect:
        calls = [
            {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, "tool_response": result.content}
            for call, result in done
        ]
        id = f"hook-{self.new_id()}"
        verdict = await self._fire("PostToolBatch", {"tool_calls": calls}, tool_use_id=id, agent=agent)
        contexts = (*self.take_late_contexts(), *model_contexts("PostToolBatch", verdict))
        return HookEffect(contexts=contexts, stop_reason=verdict.stopped)

    async def start_subagent(self, agent: Json) -> tuple[str, ...]:
        verdict = await self.fire("SubagentStart", {}, subjects=(agent["agent_type"],), agent=agent)
        return model_contexts("SubagentStart", verdict)

    async def before_display(self, turn_id: str, text: str) -> str | None:
        id = self.new_id()
        details = {"turn_id": turn_id, "message_id": id, "index": 0, "final": True, "delta": text}
        verdict = await self.fire("MessageDisplay", details, tool_use_id=f"{id}-0")
        shown: str | None = verdict.fields.get("displayContent")
        return shown

    # End.

    async def before_stop(self, text: str, stops: int, agent: Json | None, transcript: str) -> HookEffect:
        event = "Stop" if agent is None else "SubagentStop"
        details: Json = {
            "stop_hook_active": stops > 0,
            **({} if agent is None else {"agent_transcript_path": transcript}),
            "last_assistant_message": text,
            "background_tasks": self._list_tasks(),
            "session_crons": self._list_crons(),
        }
        subjects = () if agent is None else (agent["agent_type"],)
        verdict = await self._fire(event, details, subjects=subjects, agent=agent)
        objections = [*([verdict.blocked] if verdict.blocked is not None else []), *verdict.contexts]
        if verdict.stopped is not None or not objections:
            return HookEffect(stop_reason=verdict.stopped)
        if stops >= MAX_STOPS:
            self.warn(f"hooks of {event} blocked the end of the turn {stops} times; the turn ends now")
            return HookEffect()
        return HookEffect(feedback=format_context(event, "\n".join(objections)))

    def _list_crons(self) -> list[Json]:
        """The scheduled prompts."""
        return [
            {"id": job.id, "schedule": job.schedule, "recurring": job.recurring, "prompt": clip(job.prompt)}
            for job in self.tasks.list_scheduled()
        ]

    def _list_tasks(self) -> list[Json]:
        """The running background tasks."""
        found = [self.tasks.find(id) for id in self.tasks.ids()]
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
        text = outcome.error_text(error)
        details = {"error": outcome.error_name(error), "error_details": text, "last_assistant_message": text}
        await self._fire("StopFailure", details)

    async def before_compaction(self, trigger: str, instructions: str | None) -> str | None:
        verdict = await self.fire("PreCompact", {"trigger": trigger, "custom_instructions": instructions})
        return verdict.blocked if verdict.blocked is not None else verdict.stopped

    async def after_compaction(self, trigger: str, text: str) -> tuple[str, ...]:
        started = await self.start_session("compact")
        await self.fire("PostCompact", {"trigger": trigger, "compact_summary": text})
        await self.report_instructions("compact")
        return tuple(format_context("SessionStart:compact", context) for context in started.contexts)

    async def before_clear(self) -> None:
        await self._fire("SessionEnd", {"reason": "clear"})

    async def after_clear(self) -> list[str]:
        with self._keep_alive():
            started = await self.start_session("clear")
        return [format_context("SessionStart:clear", text) for text in started.contexts]

    async def end_session(self, reason: str) -> None:
        try:
            async with asyncio.timeout(SESSION_END_SECONDS):
                # Callbacks need a connected client.
                hooks, is_gone = self.registry, self.outbox.is_client_gone
                among = [*hooks.extensions, *hooks.commands] if is_gone else hooks.list_hooks()
                await self.fire("SessionEnd", {"reason": reason}, among=among)
        except TimeoutError:
            self.warn(f"SessionEnd hooks were stopped after {SESSION_END_SECONDS:g} s")
        finally:
            await self.close()


def clip(text: str) -> str:
    more = len(text) - MAX_TEXT_CHARS
    return text if more <= 0 else f"{text[:MAX_TEXT_CHARS]}… [+{more} chars]"
