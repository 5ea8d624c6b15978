"""The host's answers: one row for every question an engine can ask.

A callback that raises, or returns what it must not, makes an error reply; the engine takes
that for a denial or a failed hook, and the text tells the model why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from parley.protocol.base import UNSET, Json, plain
from parley.protocol.messages.requests import (
    CanUseTool,
    Elicitation,
    HookCallback,
    McpMessage,
    Request,
    RequestUserDialog,
    SdkControlInterrupt,
    UnknownRequest,
)
from parley.sdk import hooks, permissions, questions
from parley.sdk.permissions import PermissionResultDeny, Signal
from parley.sdk.runtime.background import awaited, log

if TYPE_CHECKING:
    from parley.sdk.options import Options
    from parley.sdk.runtime.mcp_servers import Hosted

FOR_PERSONS = {"AskUserQuestion": "on_question", "ExitPlanMode": "on_plan"}
"""Tools whose calls are questions to a person, and the callback that has them."""


class Answerer:
    """Knows the callbacks of one session."""

    def __init__(self, options: Options, servers: Mapping[str, Hosted]) -> None:
        self.hooks = hooks.Registry(options.hooks)
        self._options = options
        self._servers = servers

    async def __call__(self, request: Request | UnknownRequest, signal: Signal) -> Any:
        row = ROWS.get(type(request))
        if row is None:
            raise NotImplementedError(f"this host does not answer {request.subtype}")
        try:
            return await row(self, request, signal)
        except Exception:
            log.warning("the callback for %s failed", self._callback(request), exc_info=True)
            raise

    def _callback(self, request: Request | UnknownRequest) -> str:
        """The option that was to answer."""
        name = FOR_PERSONS.get(request.tool_name) if isinstance(request, CanUseTool) else None
        return name if name is not None and getattr(self._options, name) is not None else request.subtype

    async def may_use(self, question: CanUseTool, signal: Signal) -> Json:
        return permissions.answer(await self._decided(question, signal), question)

    async def _decided(self, question: CanUseTool, signal: Signal) -> object:
        options, input = self._options, question.input
        call_id = None if question.tool_use_id is UNSET else question.tool_use_id
        if question.tool_name == "AskUserQuestion" and options.on_question is not None:
            asked = questions.read_questions(input, call_id)
            return questions.decided_question(asked, await awaited(options.on_question(asked)))
        if question.tool_name == "ExitPlanMode" and options.on_plan is not None:
            plan = questions.read_plan(input, call_id)
            return questions.decided_plan(plan, await awaited(options.on_plan(plan)))
        if options.can_use_tool is None:
            return PermissionResultDeny(message="nobody here can be asked for permission")
        context = permissions.context(question, signal)
        return await awaited(options.can_use_tool(question.tool_name, input, context))

    async def hook(self, call: HookCallback, signal: Signal) -> Json:
        """Engines name a callback; the oldest documents show the event and its data instead."""
        callback_id = call.callback_id if isinstance(call.callback_id, str) else ""
        event = call.hook_name if isinstance(call.hook_name, str) else ""
        told = call.input if call.input is not UNSET else call.hook_data
        found = self.hooks.find(callback_id, event)
        if not found:
            raise LookupError(f"there is no hook {callback_id or event!r}")
        call_id = None if call.tool_use_id is UNSET else call.tool_use_id
        answer: Json = {}
        for hook in found:
            given = {} if told is UNSET else told
            said = hooks.spelled(await awaited(hook(given, call_id, {"signal": signal})))
            if said and (unknown := hooks.unknown_keys(str(given.get("hook_event_name") or event), said)):
                log.warning(
                    "the answer of the hook %s has keys that are not known: %s", callback_id, ", ".join(unknown)
                )
            answer |= said
        return answer

    async def mcp(self, request: McpMessage, signal: Signal) -> Json:
        server = self._servers.get(request.server_name)
        if server is None:
            unknown = {"code": -32601, "message": f"there is no server {request.server_name!r}"}
            return {"mcp_response": {"jsonrpc": "2.0", "id": request.message.get("id"), "error": unknown}}
        return {"mcp_response": await server.handle(request.message)}

    async def elicit(self, request: Elicitation, signal: Signal) -> Json:
        if self._options.on_elicitation is None:
            return {"action": "decline"}
        answer: Json = await awaited(self._options.on_elicitation(plain(request)))
        return answer

    async def dialog(self, request: RequestUserDialog, signal: Signal) -> Json:
        if self._options.on_user_dialog is None:
            return {"behavior": "cancelled"}
        answer: Json = await awaited(self._options.on_user_dialog(plain(request)))
        return answer

    async def interrupted(self, request: SdkControlInterrupt, signal: Signal) -> Json:
        """Only the oldest documents show it; nothing follows from it but that it was heard."""
        return {}


Row = Callable[[Answerer, Any, Signal], Awaitable[Any]]
ROWS: dict[type, Row] = {
    CanUseTool: Answerer.may_use,
    HookCallback: Answerer.hook,
    McpMessage: Answerer.mcp,
    Elicitation: Answerer.elicit,
    RequestUserDialog: Answerer.dialog,
    SdkControlInterrupt: Answerer.interrupted,
}
