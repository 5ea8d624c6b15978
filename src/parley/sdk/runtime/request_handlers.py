"""Answer control requests of an engine by calling the program's callbacks.

If a callback raises or returns an invalid value, the engine receives an error response. It treats
that as a denial or a failed hook, and passes the text to the model.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from parley.protocol.base import UNSET, Json, to_builtins
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
from parley.sdk import hooks, permissions, questions, spelling
from parley.sdk.context import CURRENT, RunContext
from parley.sdk.errors import InvalidReturn
from parley.sdk.permissions import PermissionResultDeny, Signal
from parley.sdk.runtime.background import current_task, log, log_failure, maybe_await
from parley.sdk.types.shapes import ElicitationResult, UserDialogResult

if TYPE_CHECKING:
    from parley.sdk.options import Options
    from parley.sdk.runtime.mcp_servers import HostedServer
    from parley.sdk.runtime.message_router import MessageRouter

USER_DIALOGS = {"AskUserQuestion": "on_question", "ExitPlanMode": "on_plan"}
"""Tools whose calls are questions to the user, and the option with their callback."""
GUARDS = frozenset({"PreToolUse", "PreModelSwitch"})
"""Events whose hooks decide whether something happens. They have `permissionDecision`."""

ANSWERING: ContextVar[tuple[MessageRouter, weakref.ref[Any]] | None] = ContextVar("parley answering", default=None)
"""The client and the task of the callback that is running. Tasks that a callback starts inherit it."""


def refuse_deadlock(router: MessageRouter) -> None:
    """Raises RuntimeError in a callback of a turn, which another turn of this client would wait for."""
    answering = ANSWERING.get()
    if answering is None or answering[0] is not router or not (router.is_busy or router.in_turn):
        return
    if answering[1]() is current_task():
        raise RuntimeError(
            "a callback cannot wait for a turn of the client that called it: this would deadlock; use another Client"
        )


class RequestHandler:
    """Calls the callbacks of one session."""

    def __init__(self, options: Options[Any], servers: Mapping[str, HostedServer], router: MessageRouter) -> None:
        self.hooks = hooks.Registry(options.hooks)
        self.failures_block = True
        """Whether the engine blocks what a failed hook guards. Claude Code is not known to."""
        self._options = options
        self._servers = servers
        self._router = router

    async def __call__(self, request: Request | UnknownRequest, signal: Signal) -> Any:
        handler = HANDLERS.get(type(request))
        if handler is None:
            raise NotImplementedError(f"the client does not support the control request {request.subtype}")
        CURRENT.set(self._make_context())  # every request is answered by a task of its own
        ANSWERING.set((self._router, weakref.ref(current_task())))
        try:
            return await handler(self, request, signal)
        except InvalidReturn as exc:
            # Parley's engine reports failed hooks itself.
            is_reported = isinstance(request, HookCallback) and self.failures_block
            log.log(logging.DEBUG if is_reported else logging.WARNING, "%s; this counts as an error", exc)
            raise
        except Exception as exc:
            log_failure(f"the callback for the request {self._callback(request)}", exc)
            raise

    def _make_context(self) -> RunContext[Any]:
        turn, init = self._router.turns.running, self._router.init
        session_id = init.session_id if init is not None and isinstance(init.session_id, str) else None
        if turn is None:
            return RunContext(self._options.deps, session_id)
        return RunContext(turn.deps, session_id, turn.uuid)

    def _callback(self, request: Request | UnknownRequest) -> str:
        """Return the name of the option whose callback handles a request."""
        name = USER_DIALOGS.get(request.tool_name) if isinstance(request, CanUseTool) else None
        return name if name is not None and getattr(self._options, name) is not None else request.subtype

    async def can_use_tool(self, request: CanUseTool, signal: Signal) -> Json:
        return permissions.encode_decision(await self._decide(request, signal), request)

    async def _decide(self, request: CanUseTool, signal: Signal) -> object:
        options, input = self._options, request.input
        call_id = None if request.tool_use_id is UNSET else request.tool_use_id
        if request.tool_name == "AskUserQuestion" and options.on_question is not None:
            asked = questions.read_questions(input, call_id)
            return questions.question_decision(asked, await maybe_await(options.on_question(asked)))
        if request.tool_name == "ExitPlanMode" and options.on_plan is not None:
            plan = questions.read_plan(input, call_id)
            return questions.plan_decision(plan, await maybe_await(options.on_plan(plan)))
        if options.can_use_tool is None:
            return PermissionResultDeny(message="the client has no can_use_tool callback to ask for permission")
        context = permissions.build_context(request, signal)
        return await maybe_await(options.can_use_tool(request.tool_name, input, context))

    async def hook(self, call: HookCallback, signal: Signal) -> Json:
        """Call a hook. Engines send a callback id; some dialects send the event and its data instead."""
        callback_id = call.callback_id if isinstance(call.callback_id, str) else ""
        event = call.hook_name if isinstance(call.hook_name, str) else ""
        sent = call.input if call.input is not UNSET else call.hook_data
        hook_input = {} if sent is UNSET else sent
        found = self.hooks.find(callback_id, event)
        if not found:
            raise LookupError(f"unknown hook {callback_id or event!r}")
        call_id = None if call.tool_use_id is UNSET else call.tool_use_id
        event = str(hook_input.get("hook_event_name") or event)
        merged: Json = {}
        for hook in found:
            output = hooks.encode_output(
                await maybe_await(hook(hook_input, call_id, {"signal": signal, "run": CURRENT.get()}))
            )
            merged |= self._check_output(callback_id, event, output)
        return merged

    def _check_output(self, callback_id: str, event: str, output: Json) -> Json:
        """Return the output of a hook. Raises InvalidReturn if a key is misspelled.

        A denial takes effect in any case. If the engine ignores hooks that fail, the error of a hook that guards a
        call becomes a denial.
        """
        try:
            hooks.check_output(event, output)
        except InvalidReturn as exc:
            is_guard = event in GUARDS and callback_id not in self.hooks.lenient
            if not hooks.is_denial(event, output):
                if self.failures_block or not is_guard:
                    raise
                output = hooks.build_denial(event, str(exc))
            log.warning("a %s hook failed: %s", event, exc)
        return output

    async def mcp(self, request: McpMessage, signal: Signal) -> Json:
        server = self._servers.get(request.server_name)
        if server is None:
            unknown = {"code": -32601, "message": f"unknown MCP server {request.server_name!r}"}
            return {"mcp_response": {"jsonrpc": "2.0", "id": request.message.get("id"), "error": unknown}}
        return {"mcp_response": await server.handle(request.message)}

    async def elicit(self, request: Elicitation, signal: Signal) -> Json:
        if self._options.on_elicitation is None:
            return {"action": "decline"}
        answer = await maybe_await(self._options.on_elicitation(to_builtins(request)))
        return check_answer("on_elicitation", answer, ElicitationResult)

    async def dialog(self, request: RequestUserDialog, signal: Signal) -> Json:
        if self._options.on_user_dialog is None:
            return {"behavior": "cancelled"}
        answer = await maybe_await(self._options.on_user_dialog(to_builtins(request)))
        return check_answer("on_user_dialog", answer, UserDialogResult)

    async def interrupt(self, request: SdkControlInterrupt, signal: Signal) -> Json:
        """Acknowledge the request. Only one dialect documents it, and it has no effect."""
        return {}


def check_answer(name: str, answer: object, kind: Any) -> Json:
    """Raises InvalidReturn for an answer that is not a dict, or has a misspelled key or none that is required."""
    if not isinstance(answer, dict):
        raise InvalidReturn(f"{name} must return a dict, not {type(answer).__name__}")
    try:
        spelling.check_keys(f"the answer of {name}", answer, kind.__annotations__)
    except TypeError as exc:
        raise InvalidReturn(str(exc)) from None
    if missing := [key for key in ("action", "behavior") if key in kind.__annotations__ and key not in answer]:
        raise InvalidReturn(f"the answer of {name} has no key {missing[0]!r}")
    return answer


HandlerMethod = Callable[[RequestHandler, Any, Signal], Awaitable[Any]]
HANDLERS: dict[type, HandlerMethod] = {
    CanUseTool: RequestHandler.can_use_tool,
    HookCallback: RequestHandler.hook,
    McpMessage: RequestHandler.mcp,
    Elicitation: RequestHandler.elicit,
    RequestUserDialog: RequestHandler.dialog,
    SdkControlInterrupt: RequestHandler.interrupt,
}
