"""The hooks around one tool call: before it is decided on, while it is asked about, after it ran.

A hook before a call is over before anything of the call happens. What hooks have to say to the model
goes behind the results of all calls of that answer, where the model's backend wants it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from parley.engine.approval.hook_opinion import HOOK, HookOpinion
from parley.engine.hooks.output_blocks import to_content
from parley.hooks.base import format_context
from parley.hooks.merge import HookVerdict
from parley.permissions.base import Allow, Deny
from parley.protocol.base import UNSET, Json, Struct
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.requests import CanUseTool
from parley.tools.base import Tool, ToolOutput, server_of
from parley.tools.selection import model_name

if TYPE_CHECKING:
    from parley.engine.hooks.dispatcher import HookDispatcher

MCP = "mcp__"
NOTIFICATION_SECONDS = 6.0
"""So long a permission question waits before a Notification tells of it."""
STEPS_BEHIND = 4
"""So many steps of the loop lie between the answer to a hook and the verdict of all, at most."""


class BeforeTool(Struct, frozen=True, kw_only=True):
    """What the hooks before a call came to."""

    opinion: HookOpinion | None = None
    updated_input: Json | None = None
    contexts: tuple[str, ...] = ()
    stop_reason: str | None = None


class AfterTool(Struct, frozen=True, kw_only=True):
    """What the hooks behind a call came to."""

    output: ToolOutput
    contexts: tuple[str, ...] = ()
    stop_reason: str | None = None


def tool_names(call: ToolUse, tool: Tool) -> tuple[str, ...]:
    """All names a tool goes by, the one that hooks are told first."""
    return tuple(dict.fromkeys([model_name(tool.name), tool.name, call.name]))


def server_fields(tool: Tool) -> Json:
    """Whose tool it is, where it is one of an MCP server: a name alone can be read in more than one way."""
    server = server_of(tool)
    return {} if server is None else {"mcp_server": server}


class ToolHooks:
    def __init__(self, dispatcher: HookDispatcher) -> None:
        self._dispatcher = dispatcher

    async def before(self, call: ToolUse, tool: Tool, agent: Json | None) -> BeforeTool:
        known = tool_names(call, tool)
        details = {"tool_name": known[0], "tool_input": call.input, "tool_use_id": call.id, **server_fields(tool)}
        verdict = await self._dispatcher.fire("PreToolUse", details, subjects=known, tool_use_id=call.id, agent=agent)
        shown = f"PreToolUse:{known[0]}"
        opinion = None
        if verdict.stopped is not None:
            why = f"a hook ended the turn{': ' + verdict.stopped if verdict.stopped else ''}"
            opinion = HookOpinion(behavior="deny", reason=why, event=shown)
        elif verdict.permission is not None:
            opinion = HookOpinion(behavior=verdict.permission, reason=verdict.permission_reason, event=shown)
        return BeforeTool(
            opinion=opinion,
            updated_input=verdict.updated_input,
            contexts=model_contexts(shown, verdict),
            stop_reason=verdict.stopped,
        )

    async def after(
        self, call: ToolUse, tool: Tool, input: Json, result: ToolOutput, seconds: float, agent: Json | None
    ) -> AfterTool:
        """Tell of a call that ran. The hooks may put another result in the place of one that succeeded."""
        known = tool_names(call, tool)
        common: Json = {"tool_name": known[0], "tool_input": input, **server_fields(tool)}
        duration = {"duration_ms": round(seconds * 1000)}
        if result.is_error:
            event = "PostToolUseFailure"
            error = {"error": join_text(result.content), "is_interrupt": False}
            details = {**common, "tool_use_id": call.id, **error, **duration}
        else:
            event = "PostToolUse"
            response = result.content if result.detail is None else result.detail
            details = {**common, "tool_response": response, "tool_use_id": call.id, **duration}
        verdict = await self._dispatcher.fire(event, details, subjects=known, tool_use_id=call.id, agent=agent)
        said, stopped = model_contexts(f"{event}:{known[0]}", verdict), verdict.stopped
        if verdict.withheld is not None:
            return AfterTool(output=withhold_output(verdict.withheld), contexts=said, stop_reason=stopped)
        new = verdict.updated_output
        if new is UNSET and any(name.startswith(MCP) for name in known):
            new = verdict.updated_mcp_output
        return AfterTool(
            output=result if new is UNSET else replace_output(result, new), contexts=said, stop_reason=stopped
        )

    def guard_output(self, call: ToolUse, tool: Tool, agent: Json | None) -> bool:
        """Whether the output of a call is nobody's before a hook has seen it that must not fail."""
        return self._dispatcher.has_guard("PostToolUse", tool_names(call, tool), agent)

    async def request_permission(
        self, asked: CanUseTool, known: tuple[str, ...], agent: Json | None
    ) -> Json | Deny | None:
        """What the hooks answer to a permission question, or decide; None if they have no opinion."""
        details: Json = {"tool_name": known[0], "tool_input": asked.input}
        if asked.mcp_server is not UNSET:
            details["mcp_server"] = asked.mcp_server
        if asked.permission_suggestions is not UNSET:
            details["permission_suggestions"] = asked.permission_suggestions
        id = asked.tool_use_id if isinstance(asked.tool_use_id, str) else None
        verdict = await self._dispatcher.fire("PermissionRequest", details, subjects=known, tool_use_id=id, agent=agent)
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
        """Tell of a question that stays open for long."""
        shown = asked.display_name or asked.tool_name
        details = {
            "message": f"Your permission is needed to use {shown}",
            "title": "Permission needed",
            "notification_type": "permission_prompt",
        }

        def tell() -> None:
            self._dispatcher.run_in_background(self._dispatcher.fire("Notification", details))

        timer = asyncio.get_running_loop().call_later(NOTIFICATION_SECONDS, tell)
        try:
            yield
        finally:
            timer.cancel()


def model_contexts(shown: str, verdict: HookVerdict) -> tuple[str, ...]:
    """What is said to the model: context, and why something is blocked."""
    said = [format_context(shown, text) for text in verdict.contexts]
    if verdict.blocked is not None and not shown.startswith("PreToolUse"):
        said.append(format_context(shown, f"The hook objects: {verdict.blocked}"))
    return tuple(said)


def withhold_output(why: str) -> ToolOutput:
    """What stands in the place of an output that must not be told."""
    text = f"The call ran, and its output is withheld: {why}."
    return ToolOutput(content=text, detail=f"Error: {text}", is_error=True)


def replace_output(result: ToolOutput, new: Any) -> ToolOutput:
    """A hook's output in the place of the tool's: a text, content blocks, or an object like the tool's own."""
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


async def race(
    host: Coroutine[Any, Any, Allow | Deny], hooks: Coroutine[Any, Any, Json | Deny | None]
) -> Allow | Deny | Json:
    """The host's decision or the hooks' answer, whichever is there first; the loser is withdrawn.

    Hooks without an opinion leave it to the host, and a host that cannot be asked leaves it to the hooks. Of answers
    that come together, a denial goes before an allow.
    """
    person = asyncio.create_task(host)
    hooked = asyncio.create_task(hooks)
    try:
        await asyncio.wait({person, hooked}, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(STEPS_BEHIND):  # the answer of hooks may be there already, and only has a longer way
            await asyncio.sleep(0)
        decision = person.result() if person.done() else None
        if hooked.done() and isinstance(decision, Allow) and denies(hooked.result()):
            return hooked.result() or decision
        if decision is not None and not (isinstance(decision, Deny) and decision.source in ("reply", "nobody")):
            return decision
        answer = await hooked
        return answer if answer is not None else await person
    finally:
        for task in (person, hooked):
            task.cancel()
        await asyncio.wait({person, hooked})
