"""Fire an event: run its hooks, wait for their answers, merge them.

    verdict = await self.fire("PreToolUse", {"tool_name": "Bash", ...}, tool_use_id=call.id)

The hooks of an event run concurrently, each with its own timeout. A hook that fails or times out is
reported on stderr and in its `hook_response`; its `onFailure` says what follows. Cancelling `fire`
cancels all of them.

Hooks from settings use models, agents, MCP servers and the network of the session (`SessionHookServices`).

See also: `parley.hooks` for what a hook is, `registry.py` for the events.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from parley.engine.approval.gate import ApprovalGate
from parley.engine.commands.commands import Commands
from parley.engine.context.conversation import Conversation
from parley.engine.hooks.registry import SessionEvents
from parley.engine.session.outbox import Outbox
from parley.engine.session.prompts import PromptIntake
from parley.engine.turn.tool_executor import ToolExecutor
from parley.errors import ModelError, NotPossible, ToolError
from parley.hooks.base import (
    Hook,
    HookInvocation,
    HookRun,
    HookServices,
    HttpReply,
    Matcher,
    format_context,
    guess_event,
    parse_failure_policy,
)
from parley.hooks.events import EVENTS, NEVER_FIRED
from parley.hooks.merge import HookResult, HookVerdict, merge_results
from parley.hooks.output import HookFailed, inert_keys
from parley.models.catalog import ModelRef
from parley.permissions.base import ToolRequest
from parley.protocol.base import UNSET, Json, to_builtins
from parley.protocol.blocks import ToolResult, ToolUse
from parley.protocol.messages.occasional import HookProgress, HookResponse, HookStarted
from parley.protocol.messages.requests import HookMatcher
from parley.protocol.messages.system import Informational
from parley.tools.base import AgentState, tool_schema

ALWAYS_REPORTED = frozenset({"SessionStart"})
"""Events whose command hooks are reported without --include-hook-events."""
HOOK_AGENT = "hook-agent"
"""The type of the agent that an agent hook runs (`SessionHookServices`)."""
MAX_REPORT_CHARS = 30_000
MAX_REPORTED_KEYS = 256
"""Limits how many unknown keys are remembered, because they come from outside."""


class HookRunner(SessionEvents):
    """Runs the hooks of a session."""

    def __init__(
        self,
        conversation: Conversation,
        prompts: PromptIntake,
        commands: Commands,
        services: HookServices,
    ) -> None:
        """`services` are for hooks from settings."""
        self.config = conversation.config
        self.conversation = conversation
        self.outbox = conversation.parts.outbox
        self.tasks = conversation.parts.tasks
        self.prompts = prompts
        self._slash_commands = commands
        self.services = services
        self.warn = self.config.warn
        self.new_id = self.config.clock.new_uuid
        self.registry = conversation.hooks
        self._transcript_path = self.config.storage.transcript_path()
        self.prompt_id = ""
        """The id of the current or last turn's prompt."""
        self._background: set[asyncio.Task[object]] = set()
        self._reported: set[tuple[str, str, tuple[str, ...]]] = set()
        """Unknown keys that were reported."""
        self._spent: set[tuple[str, str, str]] = set()
        """Hooks with `once` that have run."""
        self._late_contexts: list[str] = []
        """Context for the model from hooks that run in the background."""

    # Lookup.

    def has_hooks(self, event: str, agent: Json | None = None) -> bool:
        return any(hook.event == event for hook in self.hooks_for(agent))

    def hooks_for(self, agent: Json | None) -> list[Hook]:
        """The hooks for an event of a subagent, or of the session itself."""
        own = self.registry.agent_hooks.get(agent.get("agent_id", ""), ()) if agent is not None else ()
        return [*self.registry.list_hooks(), *own]

    def has_guard(self, event: str, subjects: tuple[str, ...], agent: Json | None) -> bool:
        """Whether a hook with `onFailure: block` matches the event."""
        return any(
            hook.event == event and hook.on_failure == "block" and hook.matches(subjects)
            for hook in self.hooks_for(agent)
        )

    def can_guarantee(self, hooks: Mapping[str, Sequence[HookMatcher]]) -> bool:
        never = {event: guess_event(event) for event in hooks if event not in EVENTS}
        if never:
            self.warn(f"hooks for these events are never called: {', '.join(never)}")
        for event, meant in never.items():
            why = f" (did you mean {meant}?)" if meant is not None else f": {NEVER_FIRED.get(event, 'unknown event')}"
            text = f"hooks for the event {event!r:.100} are never called{why}"
            self.outbox.send(Informational(content=text, level="warning"))
        for error in {Matcher(hook.matcher).problem for hook in self.registry.callbacks} - {None}:
            self.warn(f"hooks: {error}")
        return not any(
            parse_failure_policy(entry.onFailure, meant or "") == "block"
            for event, meant in never.items()
            for entry in hooks[event]
        )

    # Firing.

    async def fire(
        self,
        event: str,
        details: Json,
        *,
        subjects: tuple[str, ...] = (),
        tool_use_id: str | None = None,
        agent: Json | None = None,
        among: Sequence[Hook] | None = None,
        get_call: Callable[[], ToolRequest] | None = None,
    ) -> HookVerdict:
        """The merged answers of all hooks of an event; an empty verdict if there are none.

        `agent` has the `agent_id` and `agent_type` of a subagent. `among` limits the hooks that run. `get_call` gives
        the tool call that the event is about, for hooks with `if`.
        """
        kind = EVENTS[event]
        subjects = subjects or tuple(str(details[name]) for name in (kind.matched,) if name in details)
        hooks = [
            hook
            for hook in (self.hooks_for(agent) if among is None else among)
            if hook.event == event and hook.matches(subjects)
        ]
        hooks.sort(key=lambda hook: not hook.is_managed)  # where the first output wins, it is that of an administrator
        hooks = self._select(hooks, agent, get_call) if hooks else hooks
        if not hooks:
            return HookVerdict()
        fired = HookInvocation(
            event=kind,
            input={**self._common_input(event, agent), **details},
            tool_use_id=tool_use_id or self.new_id(),
            subjects=subjects,
            shown=f"{event}:{subjects[0]}" if subjects else event,
        )
        async with asyncio.TaskGroup() as together:
            runs = [together.create_task(self._run(hook, fired)) for hook in hooks]
        results = [
            HookResult(label=hook.label, source=hook.source, on_failure=hook.on_failure, run=task.result(), hook=hook)
            for hook, task in zip(hooks, runs, strict=True)
        ]
        verdict = merge_results(kind, results)
        self._send_system_message(fired, verdict)
        return verdict

    def _select(self, hooks: list[Hook], agent: Json | None, get_call: Callable[[], ToolRequest] | None) -> list[Hook]:
        """The hooks whose condition holds, that have not run if they run once, and that do not start each other."""
        within = agent is not None and agent.get("agent_type") == HOOK_AGENT
        found = [hook for hook in hooks if not (hook.starts_agent and within)]
        if any(hook.condition is not None for hook in found):
            call = get_call() if get_call is not None else None
            found = [hook for hook in found if hook.condition is None or (call is not None and hook.condition(call))]
        keys = {(hook.event, hook.label, hook.matcher) for hook in found if hook.once}
        found = [hook for hook in found if not hook.once or (hook.event, hook.label, hook.matcher) not in self._spent]
        self._spent |= keys
        return found

    def _common_input(self, event: str, agent: Json | None) -> Json:
        """The fields that start every hook input."""
        conversation, kind = self.conversation, EVENTS[event]
        common: Json = {
            "session_id": self.config.identity.id,
            "transcript_path": self._transcript_path,
            "cwd": self._cwd_of(agent) or conversation.tool_context.state.cwd,
            "prompt_id": self.prompt_id,
        }
        if kind.includes_mode:
            common["permission_mode"] = conversation.mode()
        common |= agent or self.registry.main_agent
        if kind.includes_effort and conversation.effort is not None:
            common["effort"] = {"level": conversation.effort}
        return {**common, "hook_event_name": event}

    def _cwd_of(self, agent: Json | None) -> str | None:
        """The working directory of a subagent, if it has one of its own."""
        task = None if agent is None else self.tasks.find(agent.get("agent_id", ""))
        return None if task is None else task.cwd()

    async def _run(self, hook: Hook, fired: HookInvocation) -> HookRun:
        """Run one hook and report on it. Raises only CancelledError."""
        is_reported = self.config.options.include_hook_events or (
            fired.event.name in ALWAYS_REPORTED and hook not in self.registry.callbacks
        )
        report = HookReport(self.outbox, fired, is_sent=is_reported)
        report.send_started()
        try:
            with self.config.observer.hook(fired.event.name, hook.label) as observation:
                async with asyncio.timeout(hook.timeout_seconds):
                    ran = await hook.run(fired, report.send_progress)
                observation.set_attributes(
                    outcome="failed" if ran.failure else "blocked" if ran.blocks is not None else "success"
                )
        except asyncio.CancelledError:
            report.send_ended(HookRun(), "cancelled")
            raise
        except TimeoutError:
            ran = HookRun(failure=f"the hook did not answer within {hook.timeout_seconds:g} s")
        except HookFailed as exc:
            ran = HookRun(failure=str(exc), unknown=exc.unknown)
        except Exception as exc:
            # A bug of ours counts as a failure of the hook; the traceback goes to stderr.
            self.warn("".join(traceback.format_exception(exc)))
            ran = HookRun(failure=f"internal error: {exc!r}")
        if ran.background is not None:
            self.run_in_background(self._finish(hook, fired, ran.background, report, wakes=ran.wakes))
        else:
            self._report(hook, fired, ran, report)
        return ran

    def _report(
        self, hook: Hook, fired: HookInvocation, ran: HookRun, report: HookReport, *, is_late: bool = False
    ) -> None:
        """Report how a hook ended. If `is_late`, the event is past and nothing can be blocked."""
        if ran.unknown:
            self._report_keys(hook, fired, ran.unknown)
        if ran.failure is not None:
            blocks = not is_late and hook.on_failure == "block" and fired.event.failure_blocks and fired.event.block
            follows = (fired.event.failure or fired.event.block) if blocks else "continuing without this hook"
            self.warn(f"hook {fired.shown} ({hook.label}) failed: {ran.failure}; {follows}")
        elif ran.blocks is not None and not fired.event.block:
            self.warn(f"hook {fired.shown} ({hook.label}) cannot block this event; its reason was: {ran.blocks}")
        if not ran.output.is_async and (inert := inert_keys(fired.event, ran.output)):
            self.report_once(
                f"hook {fired.shown} ({hook.label}): these keys of its answer have no effect: {', '.join(inert)}"
            )
        if ran.output.continues is False and not ran.output.is_async and not fired.event.stops:
            self.warn(f"hook {fired.shown} ({hook.label}) cannot stop the turn at this event: `continue` has no effect")
        report.send_ended(ran, "error" if ran.failure is not None or ran.blocks is not None else "success")

    def _report_keys(self, hook: Hook, fired: HookInvocation, keys: tuple[str, ...]) -> None:
        """Warn about unknown keys of an answer, once per hook."""
        if (hook.event, hook.label, keys) in self._reported:
            return
        if len(self._reported) >= MAX_REPORTED_KEYS:
            self._reported.clear()
        self._reported.add((hook.event, hook.label, keys))
        self._warn_client(f"hook {fired.shown} ({hook.label}): its answer has unknown keys: {', '.join(keys)}")

    def report_once(self, text: str) -> None:
        """Warn about something that has no effect, once."""
        if ("", text, ()) not in self._reported:
            self._reported.add(("", text, ()))
            self._warn_client(text)

    def _warn_client(self, text: str) -> None:
        self.warn(text)
        self.outbox.send(Informational(content=text, level="warning"))

    def _send_system_message(self, fired: HookInvocation, verdict: HookVerdict) -> None:
        call = fired.input.get("tool_use_id", UNSET)
        for message in verdict.messages:
            text = f"{fired.shown} says: {message}"
            self.outbox.send(Informational(content=text, level="notice", tool_use_id=call))
        if verdict.stopped:
            text = f"{fired.shown} hook stopped {fired.event.stops}: {verdict.stopped}"
            self.outbox.send(Informational(content=text, level="warning", prevent_continuation=True, tool_use_id=call))

    # In the background.

    def run_in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a task that ends with the session."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _finish(
        self, hook: Hook, fired: HookInvocation, later: Awaitable[HookRun], report: HookReport, *, wakes: bool
    ) -> None:
        try:
            ran = await later
        except asyncio.CancelledError:
            report.send_ended(HookRun(), "cancelled")
            raise
        self._report(hook, fired, ran, report, is_late=True)
        if wakes and ran.blocks is not None:
            reason = ran.blocks or "blocked without a reason"
            self.prompts.wake(format_context(fired.shown, f"The hook reports a problem: {reason}"))
        verdict = merge_results(
            fired.event, [HookResult(label=hook.label, source=hook.source, on_failure="continue", run=ran)]
        )
        self.add_late_contexts(fired.shown, verdict.contexts)
        self._send_system_message(fired, msgspec.structs.replace(verdict, stopped=None))

    def add_late_contexts(self, shown: str, texts: Sequence[str]) -> None:
        """Context that reaches the model with the next message."""
        self._late_contexts += [format_context(shown, text) for text in texts]

    def take_late_contexts(self) -> list[str]:
        """Return and clear the context from background hooks."""
        late, self._late_contexts = self._late_contexts, []
        return late

    async def close(self) -> None:
        """Cancel the hooks that still run in the background."""
        running = set(self._background)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


class HookReport:
    """The messages about one run of a hook, for clients that request them."""

    def __init__(self, outbox: Outbox, fired: HookInvocation, *, is_sent: bool) -> None:
        self._outbox = outbox
        self._fired = fired
        self._is_sent = is_sent
        self._id = outbox.clock.new_uuid() if self._is_sent else ""

    def send_started(self) -> None:
        if self._is_sent:
            self._outbox.send(
                HookStarted(hook_id=self._id, hook_name=self._fired.shown, hook_event=self._fired.event.name)
            )

    def send_progress(self, stdout: str, stderr: str) -> None:
        if self._is_sent:
            stdout, stderr = stdout[-MAX_REPORT_CHARS:], stderr[-MAX_REPORT_CHARS:]
            self._outbox.send(
                HookProgress(
                    hook_id=self._id,
                    hook_name=self._fired.shown,
                    hook_event=self._fired.event.name,
                    stdout=stdout,
                    stderr=stderr,
                    output=stdout + stderr,
                )
            )

    def send_ended(self, ran: HookRun, outcome: str) -> None:
        if not self._is_sent:
            return
        hidden = ran.output.suppressOutput is True
        stdout, stderr = ("", "") if hidden else (ran.stdout[:MAX_REPORT_CHARS], ran.stderr[:MAX_REPORT_CHARS])
        output = stdout + stderr or ("" if hidden else format_answer(ran))
        self._outbox.send(
            HookResponse(
                hook_id=self._id,
                hook_name=self._fired.shown,
                hook_event=self._fired.event.name,
                output=output[:MAX_REPORT_CHARS],
                stdout=stdout,
                stderr=stderr or (ran.failure or "" if ran.exit_code is UNSET else ""),
                outcome=outcome,
                exit_code=ran.exit_code,
            )
        )


def format_answer(ran: HookRun) -> str:
    """The answer of a hook without output, as JSON."""
    answer = msgspec.json.decode(msgspec.json.encode(to_builtins(ran.output)))
    fields = {name: value for name, value in answer.items() if value is not None}
    if isinstance(fields.get("hookSpecificOutput"), dict):
        specific = fields["hookSpecificOutput"]
        fields["hookSpecificOutput"] = {name: value for name, value in specific.items() if value is not None}
    return msgspec.json.encode(fields).decode() if fields else ""


TOOLS = ("Read", "Grep", "Glob")
MAX_CALLS = 50
"""Model calls of one run."""
SYSTEM = (
    "You check whether a condition is met. Look at files with your tools if you need to; you cannot change anything. "
    "When you know, answer as the user says."
)


class SessionHookServices:
    def __init__(self, conversation: Conversation, gate: ApprovalGate) -> None:
        """`gate` asks no one. It decides on the calls of agent hooks."""
        self._conversation = conversation
        self._side_query = conversation.parts.side_query
        self._servers = conversation.parts.servers
        self._gate = gate

    async def ask_model(self, prompt: str, model: str | None) -> str:
        try:
            if model is None:
                return await self._side_query.ask_small(prompt)
            return await self._side_query.ask(self._find_model(model), prompt)
        except ModelError as exc:
            raise HookFailed(f"the model failed: {exc}") from None

    async def run_agent(self, prompt: str, model: str | None) -> str:
        choice = self._conversation.model if model is None else self._find_model(model)
        try:
            return await run_verifier(self._conversation, self._gate, choice, prompt)
        except ModelError as exc:
            raise HookFailed(f"the model failed: {exc}") from None

    def _find_model(self, name: str) -> ModelRef:
        try:
            return self._conversation.find_model(name)
        except NotPossible as exc:
            raise HookFailed(str(exc)) from None

    async def call_mcp_tool(self, server: str, tool: str, input: Json) -> Json:
        found = self._servers.find(server)
        if found is None:
            raise HookFailed(f"there is no MCP server {server!r}")
        if found.status != "connected":
            raise HookFailed(f"the MCP server {server!r} is not connected ({found.status})")
        if tool not in [listed["name"] for listed in found.tools]:
            raise HookFailed(f"the MCP server {server!r} has no tool {tool!r}")
        try:
            # The timeout of the hook applies.
            answer = await found.call(tool, input, meta={}, seconds=None)
        except ToolError as exc:
            raise HookFailed(f"{server}/{tool} failed: {exc}") from None
        content = answer.get("content")
        blocks = content if isinstance(content, list) else []
        if answer.get("isError") is True:
            text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
            raise HookFailed(f"{server}/{tool} failed: {text}")
        return {**answer, "content": blocks}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, is_listed: bool) -> HttpReply:
        open_web = self._conversation.tool_context.open_web
        if open_web is None:
            raise HookFailed("the network is not available in this session")
        try:
            page = await open_web().post(url, headers, body, own=is_listed)
        except ToolError as exc:
            raise HookFailed(str(exc)) from None
        return HttpReply(status=page.code, body=page.body)


async def run_verifier(conversation: Conversation, gate: ApprovalGate, choice: ModelRef, prompt: str) -> str:
    """The final text of the agent. Raises ModelError, HookFailed."""
    config = conversation.config
    tools = {name: config.tools[name] for name in TOOLS if name in config.tools}
    agent = {"agent_id": f"hook-{config.clock.new_uuid()}", "agent_type": HOOK_AGENT}
    context = conversation.tool_context
    context = msgspec.structs.replace(context, state=AgentState(cwd=context.state.cwd))
    executor = ToolExecutor(tools, gate, context, conversation.hooks, config.warn, agent=agent)
    schemas = [tool_schema(tool) for tool in tools.values()]
    messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    for _ in range(MAX_CALLS):
        blocks = await conversation.parts.side_query.converse(choice, SYSTEM, messages, schemas)
        calls = [ToolUse(block) for block in blocks if block.get("type") == "tool_use"]
        if not calls:
            text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text").strip()
            if not text:
                raise ModelError("the model's answer has no text")
            return text
        results = []
        for call in calls:
            outcome = await executor.run(call, conversation.mode)
            results.append(ToolResult.of(call.id, outcome.output.content, outcome.output.is_error).json)
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    raise HookFailed(f"the agent of the hook did not answer within {MAX_CALLS} model calls")
