"""One session of an editor: a client of its engine, and the translation in both directions.

Messages of the engine become `session/update` notifications, in order, as they arrive. Its questions become requests to
the editor. A prompt returns when its turn has ended. A person may change the permission mode, the model and its effort
(`ConfigState`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

from parley.acp import questions
from parley.acp.host import Editor, SessionLink
from parley.acp.questions import PermissionChoice
from parley.acp.tool_calls import describe_call, text_content
from parley.acp.updates import UpdateTranslator
from parley.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from parley.protocol.base import Json, Message, Refused, decode
from parley.protocol.blocks import ToolUse
from parley.protocol.messages.occasional import CommandsChanged, ElicitationComplete
from parley.protocol.messages.system import Init, Status
from parley.sdk.client import Client
from parley.sdk.errors import ClaudeSDKError, ResultError
from parley.sdk.options import Options
from parley.sdk.permissions import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from parley.sdk.questions import Answers, Plan, PlanDecision, Questions
from parley.sdk.types.messages import ResultMessage
from parley.sdk.types.shapes import ElicitationRequest, ElicitationResult

AUTH_REQUIRED = -32000
OUTPUT_SECONDS = 0.1
"""How often the output of a command is shown."""
STOP_REASONS = {"max_tokens": "max_tokens", "model_context_window_exceeded": "max_tokens", "refusal": "refusal"}
"""Why the model stopped, as an editor reads it; other reasons are `end_turn`."""
MODES = {
    "default": ("Ask", "Ask before edits and commands that no rule allows"),
    "acceptEdits": ("Accept edits", "Edit files in the working directories without asking"),
    "plan": ("Plan", "Change nothing, and present a plan"),
    "auto": ("Auto", "Edit files and run harmless commands without asking"),
    "dontAsk": ("Do not ask", "Deny calls that no rule allows, without asking"),
    "bypassPermissions": ("Bypass permissions", "Allow everything that no rule denies"),
}


class ConfigState:
    """The options of a session and their values."""

    def __init__(self, *, may_bypass: bool) -> None:
        """`may_bypass`: whether the mode `bypassPermissions` is offered."""
        self.mode = "default"
        self.model = "default"
        self.effort = "default"
        self._models: list[Json] = []
        self._may_bypass = may_bypass

    def read_info(self, info: Json, settings: Json) -> None:
        """Take what the engine says of itself at the start."""
        self.mode = str(info.get("current_permission_mode", self.mode))
        self._models = [model for model in info.get("models", ()) if isinstance(model, dict)]
        applied = settings.get("applied", {})
        self.model = self._find_model(str(applied.get("model")))
        self.effort = applied.get("effort") or "default"

    def read(self, message: Init | Status) -> bool:
        """Take what the engine says later; returns whether something changed."""
        before = self.mode, self.model
        if isinstance(message.permissionMode, str):
            self.mode = message.permissionMode
        if isinstance(message, Init) and isinstance(message.model, str) and message.model != self._resolve(self.model):
            self.model = self._find_model(message.model)
        return before != (self.mode, self.model)

    # What an editor shows.

    def modes(self) -> Json:
        """The modes for editors that do not know config options."""
        modes = [{"id": each.pop("value"), **each} for each in self._mode_rows()]
        return {"currentModeId": self.mode, "availableModes": modes}

    def options(self) -> list[Json]:
        effort = [select("effort", "Effort", "thought_level", self.effort, self._effort_rows())]
        return [
            select("mode", "Mode", "mode", self.mode, self._mode_rows()),
            select("model", "Model", "model", self.model, self._model_rows()),
            *(effort if len(self._effort_rows()) > 1 else ()),
        ]

    def choices(self, id: str) -> list[str]:
        """The values of an option; none for an unknown one."""
        rows = {"mode": self._mode_rows, "model": self._model_rows, "effort": self._effort_rows}.get(id)
        return [] if rows is None else [row["value"] for row in rows()]

    def _mode_rows(self) -> list[Json]:
        hidden = set() if self._may_bypass or self.mode == "bypassPermissions" else {"bypassPermissions"}
        return [row(mode, *words) for mode, words in MODES.items() if mode not in hidden]

    def _model_rows(self) -> list[Json]:
        rows = [
            row(each["value"], str(each.get("displayName", each["value"])), str(each.get("description", "")))
            for each in self._models
        ]
        return rows if any(each["value"] == self.model for each in rows) else [*rows, row(self.model, self.model, "")]

    def _effort_rows(self) -> list[Json]:
        model = next((each for each in self._models if each["value"] == self.model), {})
        levels = model.get("supportedEffortLevels") or ()
        return [
            row("default", "Default", "The model's default effort"),
            *(row(level, level.title(), "") for level in levels),
        ]

    def _find_model(self, name: str) -> str:
        """The value under which a model is listed; its name if it is not."""
        names = ("value", "resolvedModel")
        return next((each["value"] for key in names for each in self._models if each.get(key) == name), name)

    def _resolve(self, value: str) -> str:
        return next((str(each.get("resolvedModel")) for each in self._models if each["value"] == value), value)


def row(value: str, name: str, description: str) -> Json:
    return {"value": value, "name": name, **({"description": description} if description else {})}


def select(id: str, name: str, category: str, value: str, rows: Sequence[Json]) -> Json:
    return {"id": id, "name": name, "category": category, "type": "select", "currentValue": value, "options": rows}


class RunningPrompt:
    """A prompt whose turn has not ended."""

    def __init__(self) -> None:
        self.is_cancelled = False


class AcpSession:
    """An open session."""

    def __init__(self, link: SessionLink, editor: Editor, warn: Callable[[str], None]) -> None:
        self.id = link.id
        self.cwd = link.cwd
        self.title = link.title
        self.config = ConfigState(may_bypass=link.may_bypass)
        self._link = link
        self._warn = warn
        self._connection = editor.connection
        self._forms = editor.capabilities.elicitation
        self._editor = editor.capabilities
        self._translator = UpdateTranslator(link.cwd, editor.capabilities, shows_prompts=link.is_shared)
        self._output: dict[str, bytes] = {}
        """What commands have written since it was last shown, by call."""
        self._prompts: set[RunningPrompt] = set()
        self._draining: asyncio.Task[None] | None = None
        options: Options[Any] = Options(
            system_prompt={"type": "preset", "preset": "claude_code"},
            can_use_tool=self._decide,
            on_question=self._ask,
            on_plan=self._review,
            on_elicitation=self._elicit,
        )
        self._engine = Client(options, link.wire)

    async def open(self, *, with_history: bool) -> None:
        """Raises RpcError."""
        try:
            await self._engine.connect()
            if self._link.servers:
                await self._engine.set_mcp_servers(self._link.servers)
            self.config.read_info(self._engine.server_info or {}, await self._engine.get_settings())
            if with_history and self._link.read_history is not None:
                await self._replay(self._link.read_history())
        except BaseException as exc:
            await self._engine.close()
            if isinstance(exc, ClaudeSDKError):
                raise RpcError(INTERNAL_ERROR, f"the session cannot be opened: {exc}") from None
            raise
        self._engine.router.watchers.append(self._receive)
        self._link.watch_output(self._watch_output)
        self._draining = asyncio.create_task(self._drain())
        self._link.on_shown()

    async def close(self, *, cancels: bool = False) -> None:
        """Leave the session. `cancels`: its turn ends, even if the session continues without this client."""
        if cancels and self._link.is_shared:
            with suppress(ClaudeSDKError):
                await self.cancel()
        self._mark_cancelled()
        await self._engine.close()
        if self._draining is not None:
            await asyncio.gather(self._draining, return_exceptions=True)

    async def _drain(self) -> None:
        """Drop the messages outside of turns; `_receive` has seen them."""
        async for _ in self._engine.receive_messages():
            pass

    # Updates.

    def send(self, update: Json) -> None:
        self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    def announce(self) -> None:
        """Send what an editor learns after a session was opened."""
        commands = (self._engine.server_info or {}).get("commands")
        self._send_commands(commands if isinstance(commands, list) else [])
        if self.title:
            self.send_title()

    def send_title(self) -> None:
        self.send({"sessionUpdate": "session_info_update", "title": self.title})

    async def _replay(self, pages: AsyncIterator[Sequence[bytes]]) -> None:
        """Send the updates of a stored conversation, as fast as the client reads them."""
        translator = self._translator
        if not self._link.is_shared:  # else the turn that is shown last may still run
            translator = UpdateTranslator(self.cwd, self._editor, shows_prompts=True)
        async for page in pages:
            for line in page:
                message = decode(line)
                if isinstance(message, Refused):
                    reason = f"a stored message is not shown, because it is invalid: {message.reason}"
                    self._warn(f"session {self.id}: {reason}")
                for update in translator.translate(message):
                    self.send(update)
                await self._connection.wait_written()

    def _receive(self, message: Message) -> None:
        """Runs in the engine's reader, so that a call is announced before the request that asks about it."""
        self._show_output()
        for update in self._translator.translate(message):
            self.send(update)
        match message:
            case Init() | Status() if self.config.read(message):
                self.send({"sessionUpdate": "config_option_update", "configOptions": self.config.options()})
            case CommandsChanged():
                self._send_commands(message.commands)
            case ElicitationComplete():
                self._connection.notify("elicitation/complete", {"elicitationId": message.elicitation_id})

    def _watch_output(self, call_id: str, data: bytes) -> None:
        if not self._output:
            asyncio.get_running_loop().call_later(OUTPUT_SECONDS, self._show_output)
        self._output[call_id] = self._output.get(call_id, b"") + data

    def _show_output(self) -> None:
        """Show what commands have written."""
        output, self._output = self._output, {}
        for call_id, data in output.items():
            for update in self._translator.show_output(call_id, data):
                self.send(update)

    def _send_commands(self, commands: Sequence[Json]) -> None:
        listed = [
            {
                "name": command["name"],
                "description": command.get("description") or command["name"],
                **({"input": {"hint": hint}} if (hint := command.get("argumentHint")) else {}),
            }
            for command in commands
        ]
        self.send({"sessionUpdate": "available_commands_update", "availableCommands": listed})

    # Prompts.

    async def prompt(self, content: str | list[Json]) -> Json:
        """Run a turn; returns the result of `session/prompt`. Raises RpcError."""
        prompt = RunningPrompt()
        self._prompts.add(prompt)
        result: ResultMessage | None = None
        try:
            result = await (await self._engine.ask(content)).wait(check=False)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        except ResultError:
            pass  # the prompt was withdrawn
        except (ClaudeSDKError, ValueError) as exc:
            if not prompt.is_cancelled:  # the session was closed before the turn ended
                raise RpcError(INTERNAL_ERROR, str(exc)) from None
        finally:
            self._prompts.discard(prompt)
        return read_result(result, is_cancelled=prompt.is_cancelled)

    async def cancel(self) -> None:
        """Interrupt the turn and withdraw prompts that wait. Questions that are open are withdrawn by the engine."""
        if self._prompts:
            self._mark_cancelled()
            await self._engine.interrupt(cancel_queued=True)

    def _mark_cancelled(self) -> None:
        for prompt in self._prompts:
            prompt.is_cancelled = True

    # Settings.

    async def set_option(self, id: str, value: str | bool) -> None:
        """Change the mode, model or effort. Raises RpcError."""
        if not isinstance(value, str) or value not in self.config.choices(id):
            choices = ", ".join(self.config.choices(id))
            raise RpcError(INVALID_PARAMS, f"unknown value {value!r} for the option {id!r} (choose from {choices})")
        try:
            match id:
                case "mode":
                    await self._engine.set_permission_mode(value)  # type: ignore[arg-type]  # checked above
                    self.config.mode = value
                case "model":
                    await self._engine.set_model(value)
                    self.config.model = value
                case "effort":
                    await self._engine.apply_flag_settings({"effortLevel": None if value == "default" else value})
                    self.config.effort = value
        except ClaudeSDKError as exc:
            raise RpcError(INVALID_PARAMS, str(exc)) from None

    # Questions of the engine.

    async def _decide(self, name: str, input: Json, context: ToolPermissionContext) -> PermissionResult:
        call = ToolUse({"type": "tool_use", "id": context.tool_use_id or "", "name": name, "input": input})
        reasons = [text_content(context.decision_reason)] if context.decision_reason else []
        choices = questions.permission_choices(context.suggestions)
        choice = await self._request_permission(call, choices, reasons, is_main=context.agent_id is None)
        if choice is None:
            return PermissionResultDeny(message=questions.CANCELLED)
        if choice.denied_rules:
            await self._deny_rules(choice.denied_rules)
        if not choice.allows:
            return PermissionResultDeny(message=questions.DENIED)
        for update in self._translator.start_call(call.id):
            self.send(update)
        return PermissionResultAllow(updated_permissions=choice.updates or None)

    async def _request_permission(
        self, call: ToolUse, choices: Sequence[PermissionChoice], content: Sequence[Json] = (), *, is_main: bool = True
    ) -> PermissionChoice | None:
        """The choice of the person; None if the turn was cancelled. Raises ValueError, RpcError, ConnectionError."""
        for update in self._translator.announce(call, is_main=is_main):
            self.send(update)
        shown = describe_call(call, self.cwd)
        response = await self._connection.request(
            "session/request_permission",
            {
                "sessionId": self.id,
                "toolCall": {**shown, "content": [*shown["content"], *content]},
                "options": [choice.to_json() for choice in choices],
            },
        )
        return questions.read_choice(response, choices)

    async def _deny_rules(self, rules: Sequence[str]) -> None:
        """Deny calls that match these rules for the rest of the session."""
        sources = (await self._engine.get_settings()).get("sources", ())
        flags: Json = next((each["settings"] for each in sources if each.get("source") == "flagSettings"), {})
        permissions = flags.get("permissions") or {}
        denied = [*permissions.get("deny", ()), *rules]
        await self._engine.apply_flag_settings({"permissions": {**permissions, "deny": list(dict.fromkeys(denied))}})

    async def _review(self, plan: Plan) -> PlanDecision:
        call = ToolUse({"type": "tool_use", "id": plan.tool_use_id or "", "name": "ExitPlanMode", "input": plan.input})
        return questions.plan_decision(plan, await self._request_permission(call, questions.PLAN_CHOICES))

    async def _ask(self, asked: Questions) -> Answers | None:
        if self._forms is None or self._forms.form is None:
            return await self._ask_choices(asked)
        message = "\n\n".join(questions.question_text(each) for each in asked.questions)
        call_id = {} if asked.tool_use_id is None else {"toolCallId": asked.tool_use_id}
        response = await self._elicitate(
            {"mode": "form", "message": message, **call_id}, questions.question_form(asked)
        )
        return questions.read_form(response, asked)

    async def _ask_choices(self, asked: Questions) -> Answers | None:
        """Each question as a permission request, which allows one choice."""
        answers: dict[str, str] = {}
        id = asked.tool_use_id or ""
        for question in asked.questions:
            call = ToolUse({"type": "tool_use", "id": id, "name": "AskUserQuestion", "input": asked.input})
            choices = questions.question_choices(question)
            text = text_content(questions.question_text(question))
            choice = await self._request_permission(call, choices, [text])
            if choice is None:
                return None
            if choice.allows:
                answers[question.text] = choice.name
        return asked.answer(answers) if answers else None

    async def _elicit(self, request: ElicitationRequest) -> ElicitationResult:
        """A question of an MCP server. It is declined if the editor cannot show it."""
        asked: Json = dict(request)
        mode, forms = asked.get("mode") or "form", self._forms
        if forms is None or getattr(forms, mode, None) is None:
            return {"action": "decline"}
        params: Json = {"mode": mode, "message": asked["message"]}
        if mode == "url":
            params |= {"elicitationId": asked.get("elicitation_id", ""), "url": asked.get("url", "")}
        schema = None if mode == "url" else asked.get("requested_schema") or {"type": "object", "properties": {}}
        found: ElicitationResult = questions.read_elicitation(await self._elicitate(params, schema))  # type: ignore[assignment]  # checked
        return found

    async def _elicitate(self, params: Json, schema: Json | None) -> Any:
        form = {} if schema is None else {"requestedSchema": schema}
        return await self._connection.request("elicitation/create", {"sessionId": self.id, **params, **form})


def read_result(result: ResultMessage | None, *, is_cancelled: bool) -> Json:
    """The result of `session/prompt`. Raises RpcError for a turn that failed."""
    if result is None:
        return {"stopReason": "cancelled"}
    usage = {"usage": read_usage(result.usage)} if result.usage else {}
    if is_cancelled or (result.terminal_reason or "").startswith("aborted_"):
        return {"stopReason": "cancelled", **usage}
    if result.subtype == "error_max_turns":
        return {"stopReason": "max_turn_requests", **usage}
    reason = STOP_REASONS.get(result.stop_reason or "")
    if result.is_error and reason is None:
        text = result.result or "; ".join(result.errors or ()) or result.subtype
        code = AUTH_REQUIRED if result.api_error_status == 401 else INTERNAL_ERROR
        raise RpcError(code, text, {"subtype": result.subtype, "status": result.api_error_status})
    return {"stopReason": reason or "end_turn", **usage}


def read_usage(usage: Json) -> Json:
    names = {
        "inputTokens": "input_tokens",
        "outputTokens": "output_tokens",
        "cachedReadTokens": "cache_read_input_tokens",
        "cachedWriteTokens": "cache_creation_input_tokens",
    }
    counts = {ours: int(usage.get(theirs) or 0) for ours, theirs in names.items()}
    return {"totalTokens": sum(counts.values()), **counts}
