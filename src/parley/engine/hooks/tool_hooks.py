"""The hooks around one tool call: before the decision, while permission is requested, after the call.

A PreToolUse hook finishes before the call starts. Context from hooks is appended after the results of all calls of the
answer, where model backends accept it.

See also: `approval/gate.py` weighs their decision against rules and mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from parley.engine.approval.gate import HOOK
from parley.engine.approval.request import (
    PendingCall,
    build_can_use_tool,
    input_digest,
    permission_request,
)
from parley.engine.hooks.registry import BeforeTool, HookEffect, HookOpinion
from parley.engine.hooks.runner import HookRunner
from parley.engine.turn.tool_executor import withhold_output
from parley.errors import ToolError
from parley.hooks.base import Hook, format_context
from parley.hooks.events import EVENTS
from parley.hooks.merge import STRENGTH, HookResult, HookVerdict, input_of, permission_of
from parley.permissions.base import Allow, Ask, Deny
from parley.protocol.base import UNSET, Json, encode_json
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool
from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.catalog import SHELL, find_traits, model_name

MCP = "mcp__"
CLIENT_DECIDED = ("host", "prompt_tool", "internal")
"""Denials that a person or a client decided, or a bug of ours: no PermissionDenied."""
NOTIFICATION_SECONDS = 6.0
"""How long a permission request is open before a Notification is fired."""
MAX_STEPS_TO_VERDICT = 4
"""Event loop steps between the answer of a hook and the merged verdict, at most."""
REQUIRED_FIELDS: dict[str, tuple[str, type]] = {
    "text": ("text", str),
    "image": ("source", dict),
    "document": ("source", dict),
    "search_result": ("source", str),
    "tool_reference": ("tool_name", str),
}
"""The block types that a result can hold, with the field that each requires."""


def tool_names(call: ToolUse, tool: Tool) -> tuple[str, ...]:
    """All names of a tool; the first is the one in hook inputs.

    Hooks for Bash see every tool that runs commands, as its rules hold for all of them.
    """
    shell = [SHELL] if find_traits(tool.name).effect == "runs_commands" else []
    return tuple(dict.fromkeys([model_name(tool.name), tool.name, call.name, *shell]))


def server_fields(tool: Tool) -> Json:
    """The server of an MCP tool; the name alone is ambiguous."""
    server = tool.mcp_server
    return {} if server is None else {"mcp_server": server}


class ToolHooks(HookRunner):
    async def before_tool(self, call: ToolUse, tool: Tool, agent: Json | None, context: Context) -> BeforeTool:
        verdict, edits = await self._fire_before(call, tool, agent, context)
        shown = f"PreToolUse:{tool_names(call, tool)[0]}"
        opinion = form_opinion(shown, verdict)
        author = edits[0] if edits and edits[0] is verdict.updates[0] else None
        if opinion is not None and opinion.behavior == "allow" and author is not None:
            # The others allow the input that they saw. They are asked about the new one.
            opinion = opinion if permission_of(EVENTS["PreToolUse"], author) == "allow" else None
        return BeforeTool(
            opinion=opinion,
            updated_input=None if author is None else verdict.updated_input,
            author=None if author is None else author.hook,
            editors=frozenset(edit.hook for edit in edits),
            contexts=model_contexts(shown, verdict),
            stop_reason=verdict.stopped,
        )

    async def before_changed_tool(
        self, call: ToolUse, tool: Tool, agent: Json | None, context: Context, earlier: BeforeTool
    ) -> BeforeTool:
        """There is no further round: if a hook sets yet another input, the call is denied.

        A hook that set one before was overruled, and what it sets is ignored, unless managed settings define it.
        """
        verdict, edits = await self._fire_before(call, tool, agent, context, author=earlier.author)
        shown = f"PreToolUse:{tool_names(call, tool)[0]}"
        opinion = strongest_opinion(earlier.opinion, form_opinion(shown, verdict))
        for edit in edits:
            if edit.hook not in earlier.editors or (edit.hook is not None and edit.hook.is_managed):
                why = f"the input was changed, and the hook ({edit.label}) changes it again"
                opinion = strongest_opinion(opinion, HookOpinion(behavior="deny", reason=why, event=shown))
        return BeforeTool(
            opinion=opinion,
            editors=earlier.editors.union(edit.hook for edit in edits),
            contexts=tuple(dict.fromkeys((*earlier.contexts, *model_contexts(shown, verdict)))),
            stop_reason=verdict.stopped,
        )

    async def _fire_before(
        self, call: ToolUse, tool: Tool, agent: Json | None, context: Context, author: Hook | None = None
    ) -> tuple[HookVerdict, list[HookResult]]:
        """The verdict of the PreToolUse hooks without `author`, and the results with another input than the call's."""
        known = tool_names(call, tool)
        details = {"tool_name": known[0], "tool_input": call.input, "tool_use_id": call.id, **server_fields(tool)}
        verdict = await self.fire(
            "PreToolUse",
            details,
            subjects=known,
            tool_use_id=call.id,
            agent=agent,
            among=[hook for hook in self.hooks_for(agent) if hook is not author],
            get_call=lambda: permission_request(tool, call.input, context),
        )
        shown_sha256 = input_digest(call.input) if verdict.updates else ""
        return verdict, [edit for edit in verdict.updates if input_digest(input_of(edit) or {}) != shown_sha256]

    async def check_task(self, tool: Tool, input: Json, context: Context, agent: Json | None) -> None:
        task = tool.task_event(input, context)
        if task is None:
            return
        details = {name: value for name, value in task.items() if name != "event"}
        verdict = await self.fire(task["event"], details, agent=agent)
        if verdict.blocked is not None:
            raise ToolError(f"{task['event']} hook feedback: {verdict.blocked}")

    async def tool_denied(
        self, call: ToolUse, tool: Tool, denial: Deny, agent: Json | None, context: Context
    ) -> list[str]:
        known = tool_names(call, tool)
        if denial.source in CLIENT_DECIDED or not self.has_hooks("PermissionDenied", agent):
            return []
        details = {"tool_name": known[0], "tool_input": call.input, "tool_use_id": call.id}
        reason = {"reason": denial.reason or denial.message}
        verdict = await self.fire(
            "PermissionDenied",
            {**details, **reason, **server_fields(tool)},
            subjects=known,
            tool_use_id=call.id,
            agent=agent,
            get_call=lambda: permission_request(tool, call.input, context),
        )
        retry = f"The call {call.id} of {known[0]} was denied. You may try it again."
        return [format_context(f"PermissionDenied:{known[0]}", retry)] if verdict.fields.get("retry") else []

    async def after_tool(
        self, ran: ToolUse, tool: Tool, output: ToolOutput, seconds: float, agent: Json | None, context: Context
    ) -> HookEffect:
        input, known = ran.input, tool_names(ran, tool)
        common: Json = {"tool_name": known[0], "tool_input": input, **server_fields(tool)}
        duration = {"duration_ms": round(seconds * 1000)}
        if output.is_error:
            event = "PostToolUseFailure"
            error = {"error": join_text(output.content), "is_interrupt": False}
            details = {**common, "tool_use_id": ran.id, **error, **duration}
        else:
            event = "PostToolUse"
            response = output.content if output.detail is None else output.detail
            details = {**common, "tool_response": response, "tool_use_id": ran.id, **duration}
        verdict = await self.fire(
            event,
            details,
            subjects=known,
            tool_use_id=ran.id,
            agent=agent,
            get_call=lambda: permission_request(tool, input, context),
        )
        contexts, stopped = model_contexts(f"{event}:{known[0]}", verdict), verdict.stopped
        if verdict.withheld is not None:
            return HookEffect(output=withhold_output(verdict.withheld), contexts=contexts, stop_reason=stopped)
        new = verdict.updated_output
        if new is UNSET and any(name.startswith(MCP) for name in known):
            new = verdict.updated_mcp_output
        replaced = None if new is UNSET else replace_output(output, new)
        return HookEffect(output=replaced, contexts=contexts, stop_reason=stopped)

    def guards_output(self, call: ToolUse, tool: Tool, agent: Json | None) -> bool:
        return self.has_guard("PostToolUse", tool_names(call, tool), agent)

    def request_permission(
        self, asking: Awaitable[Allow | Deny], question: Ask, pending: PendingCall, *, only_managed: bool
    ) -> Awaitable[Allow | Deny | Json]:
        hooks = [
            hook
            for hook in self.hooks_for(pending.agent)
            if hook.event == "PermissionRequest" and (hook.is_managed or not only_managed)
        ]
        return race(asking, self._ask_hooks(question, pending, hooks)) if hooks else asking

    async def _ask_hooks(self, question: Ask, pending: PendingCall, among: Sequence[Hook]) -> Json | Deny | None:
        """The answer or decision of the PermissionRequest hooks; None if they have no opinion."""
        asked, known = build_can_use_tool(question, pending), tool_names(pending.call, pending.tool)
        details: Json = {"tool_name": known[0], "tool_input": asked.input}
        if asked.mcp_server is not UNSET:
            details["mcp_server"] = asked.mcp_server
        if asked.permission_suggestions is not UNSET:
            details["permission_suggestions"] = asked.permission_suggestions
        id = asked.tool_use_id if isinstance(asked.tool_use_id, str) else None
        verdict = await self.fire(
            "PermissionRequest",
            details,
            subjects=known,
            tool_use_id=id,
            agent=pending.agent,
            among=among,
            get_call=lambda: pending.request,
        )
        if verdict.stopped is not None:
            why = f"a hook ended the turn{': ' + verdict.stopped if verdict.stopped else ''}"
            text = f"PermissionRequest:{known[0]} hook error: {why}"
            return Deny(message=text, source=HOOK, reason=why, reason_type=HOOK, stop_reason=verdict.stopped)
        answer = verdict.answer
        if answer is not None and answer.get("behavior") == "deny" and not isinstance(answer.get("message"), str):
            return {**answer, "message": "A hook denied the permission."}
        return answer

    @contextmanager
    def notify_when_slow(self, asked: CanUseTool) -> Iterator[None]:
        shown = asked.display_name or asked.tool_name
        details = {
            "message": f"Your permission is needed to use {shown}",
            "title": "Permission needed",
            "notification_type": "permission_prompt",
        }

        def notify() -> None:
            self.run_in_background(self._notify(details))

        timer = asyncio.get_running_loop().call_later(NOTIFICATION_SECONDS, notify)
        try:
            yield
        finally:
            timer.cancel()

    async def _notify(self, details: Json) -> None:
        verdict = await self.fire("Notification", details)
        self.add_late_contexts("Notification", verdict.contexts)


def form_opinion(shown: str, verdict: HookVerdict) -> HookOpinion | None:
    if verdict.stopped is not None:
        why = f"a hook ended the turn{': ' + verdict.stopped if verdict.stopped else ''}"
        return HookOpinion(behavior="deny", reason=why, event=shown)
    if verdict.permission is None:
        return None
    return HookOpinion(behavior=verdict.permission, reason=verdict.permission_reason, event=shown)


def strongest_opinion(*opinions: HookOpinion | None) -> HookOpinion | None:
    """The strongest; the first of equal ones."""
    given = [opinion for opinion in opinions if opinion is not None]
    return max(given, key=lambda opinion: STRENGTH[opinion.behavior], default=None)


def model_contexts(shown: str, verdict: HookVerdict) -> tuple[str, ...]:
    """The text for the model: context, and why a hook objects."""
    contexts = [format_context(shown, text) for text in verdict.contexts]
    if verdict.blocked is not None and not shown.startswith("PreToolUse"):
        contexts.append(format_context(shown, f"The hook reports a problem: {verdict.blocked}"))
    return tuple(contexts)


def replace_output(result: ToolOutput, new: Any) -> ToolOutput:
    """Replace a tool's output by that of a hook: a string, content blocks, or an object like the tool's own."""
    content = to_content(new)
    if isinstance(new, dict) and isinstance(new.get("stdout"), str) and isinstance(content, str):
        content = "\n".join(part for part in (new["stdout"], new.get("stderr")) if isinstance(part, str) and part)
    return msgspec.structs.replace(result, content=content, detail=new)


def join_text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in content if "text" in block)


def denies(answer: Json | Deny | None) -> bool:
    return isinstance(answer, Deny) or (answer is not None and answer.get("behavior") != "allow")


async def race(host: Awaitable[Allow | Deny], hooks: Coroutine[Any, Any, Json | Deny | None]) -> Allow | Deny | Json:
    """The client's decision or the hooks' answer, whichever comes first; the other is cancelled.

    If the hooks have no opinion, the client decides. If the client cannot answer, the hooks decide. If both answer
    at once, a denial wins.
    """
    asked = asyncio.ensure_future(host)
    hooked = asyncio.create_task(hooks)
    try:
        await asyncio.wait({asked, hooked}, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(MAX_STEPS_TO_VERDICT):  # the hooks may have answered in the same step
            await asyncio.sleep(0)
        decision = asked.result() if asked.done() else None
        if hooked.done() and isinstance(decision, Allow) and denies(hooked.result()):
            return hooked.result() or decision
        if decision is not None and not (isinstance(decision, Deny) and decision.source in ("reply", "nobody")):
            return decision
        answer = await hooked
        return answer if answer is not None else await asked
    finally:
        for task in (asked, hooked):
            task.cancel()
        await asyncio.wait({asked, hooked})


def to_content(given: Any) -> str | list[Json]:
    """A string, or content blocks; any other value becomes JSON text."""
    if isinstance(given, str):
        return given
    blocks = find_blocks(given)
    return blocks if blocks is not None else encode_json(given).decode()


def find_blocks(given: Any) -> list[Json] | None:
    """The value as content blocks, or None. MCP blocks are converted."""
    from parley.mcp.content import BLOCKS, convert_block

    listed = given.get("content") if isinstance(given, dict) else given
    if not isinstance(listed, list) or not all(isinstance(block, dict) for block in listed):
        return None
    if not all(is_model_block(block) or str(block.get("type")) in BLOCKS for block in listed):
        return None
    return [block if is_model_block(block) else convert_block(block) for block in listed]


def is_model_block(block: Json) -> bool:
    """Whether a block is valid in the model API."""
    key, wanted = REQUIRED_FIELDS.get(str(block.get("type")), ("", object))
    return bool(key) and isinstance(block.get(key), wanted)
