"""Translate the messages of an engine to the updates that an editor shows.

    translator = UpdateTranslator("/srv/app", ClientCapabilities())
    translator.translate(message)    ->  [{"sessionUpdate": "agent_message_chunk", ...}]

Live messages and those of a stored session pass through the same code. Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from parley.acp.schema import ClientCapabilities
from parley.acp.tool_calls import TerminalViews, describe_call, describe_result, image_block
from parley.protocol.base import UNSET, Json, Message, Struct
from parley.protocol.blocks import Image, Text, Thinking, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Status
from parley.tools.catalog import find_traits

TASK_NUMBER = re.compile(r"#(\w+)")
STATUSES = ("pending", "in_progress", "completed")
SEVERITIES = ("info", "warning", "error")
NOT_PROMPTS = ("[Request interrupted by user", "<local-command-stdout>")
"""How texts begin that the engine adds to the conversation in the name of the user."""


class EventBlock(Struct, frozen=True):
    type: str = ""


class EventDelta(Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""


class EventMessage(Struct, frozen=True):
    id: str = ""


class ShownEvent(Struct, frozen=True):
    """The parts of a stream event that are shown."""

    type: str
    message: EventMessage = EventMessage()
    content_block: EventBlock = EventBlock()
    delta: EventDelta = EventDelta()
    usage: Json | None = None


class RunningCall(NamedTuple):
    call: ToolUse
    is_main: bool
    """Whether the session's own model made it, not a subagent."""


class PlanTracker:
    """The work list of the model: the todos that it writes as a whole, or the tasks that it changes one by one."""

    def __init__(self) -> None:
        self._tasks: dict[str, Json] = {}

    def start(self, call: ToolUse) -> list[Json]:
        todos = call.input.get("todos")
        if not isinstance(todos, list):
            return []
        return [
            plan_update([entry(each.get("content"), each.get("status")) for each in todos if isinstance(each, dict)])
        ]

    def finish(self, call: ToolUse, result: ToolResult) -> list[Json]:
        if result.is_error is True or "todos" in call.input:
            return []
        if isinstance(id := call.input.get("taskId"), str):
            self._change(id.lstrip("#"), call.input)
        elif (found := TASK_NUMBER.search(str(result.content))) and "subject" in call.input:
            self._tasks[found[1]] = entry(call.input["subject"], "pending")
        else:
            return []
        return [plan_update(list(self._tasks.values()))]

    def _change(self, id: str, changes: Json) -> None:
        if changes.get("status") == "deleted":
            self._tasks.pop(id, None)
        elif (old := self._tasks.get(id)) is not None:
            self._tasks[id] = entry(changes.get("subject", old["content"]), changes.get("status", old["status"]))


def entry(content: Any, status: Any) -> Json:
    return {"content": str(content), "priority": "medium", "status": status if status in STATUSES else "pending"}


def plan_update(entries: list[Json]) -> Json:
    return {"sessionUpdate": "plan", "entries": entries}


class UpdateTranslator:
    """Translates the messages of one session."""

    def __init__(self, cwd: str, editor: ClientCapabilities, *, shows_prompts: bool = False) -> None:
        """`shows_prompts`: the editor does not know them, because they are stored, or another client sent them."""
        self._cwd = cwd
        self._editor = editor
        self._shows_prompts = shows_prompts
        self._terminals = TerminalViews() if editor.shows_terminals else None
        self._compaction = ""
        """The id of the compaction that runs."""
        self._message_id = ""
        """The message that the model writes."""
        self._plan = PlanTracker()
        self._running: dict[str, RunningCall] = {}
        """The calls without a result, by id."""
        self._streamed = ""
        """What was shown of the current block while it was streamed."""
        self._used_tokens = 0

    def translate(self, message: Message) -> list[Json]:
        translate = TRANSLATIONS.get(type(message))
        return [] if translate is None else translate(self, message)

    def announce(self, call: ToolUse, *, is_main: bool) -> list[Json]:
        """The update for a call, unless it was sent before."""
        if call.id in self._running:
            return []
        self._running[call.id] = RunningCall(call, is_main)
        terminal = {}
        if self._terminals is not None and find_traits(call.name).effect == "runs_commands":
            terminal = self._terminals.open(call, self._cwd)
        return [{"sessionUpdate": "tool_call", **describe_call(call, self._cwd), **terminal}]

    def show_output(self, call_id: str, data: bytes) -> list[Json]:
        """The updates for what a command writes while it runs."""
        update = None if self._terminals is None else self._terminals.write(call_id, data)
        return [] if update is None else [update]

    def _abandon(self) -> list[Json]:
        """The updates for calls of the turn that will have no result. Subagents may run on in the background."""
        ended = [each for each in self._running.values() if each.is_main]
        for each in ended:
            del self._running[each.call.id]
            if self._terminals is not None:
                self._terminals.drop(each.call.id)
        return [
            {"sessionUpdate": "tool_call_update", "toolCallId": each.call.id, "status": "failed"}
            for each in ended
            if not find_traits(each.call.name).work_list
        ]

    # What the model writes.

    def _show_event(self, message: StreamEvent) -> list[Json]:
        if isinstance(message.parent_tool_use_id, str):
            return []
        event = msgspec.json.decode(message.event, type=ShownEvent)
        if event.type == "message_start":
            self._message_id = event.message.id
        elif event.type == "content_block_start":
            self._streamed = ""
        elif event.type == "content_block_delta" and (text := event.delta.text or event.delta.thinking):
            self._streamed += text
            kind = "agent_thought_chunk" if event.delta.thinking else "agent_message_chunk"
            return [chunk(kind, text, self._message_id)]
        elif event.type == "message_delta" and event.usage is not None:
            self._used_tokens = sum(value for name, value in event.usage.items() if name in CONTEXT_TOKENS)
        return []

    def _show_assistant(self, message: Assistant) -> list[Json]:
        is_main = not isinstance(message.parent_tool_use_id, str)
        updates: list[Json] = []
        for block in message.message.content:
            match block:
                case ToolUse() if find_traits(block.name).work_list:
                    self._running[block.id] = RunningCall(block, is_main)
                    updates += self._plan.start(block) if is_main else []
                case ToolUse():
                    updates += self.announce(block, is_main=is_main)
                case Text() if is_main and message.is_api_error_message is not True and message.error is UNSET:
                    updates += self._show_block("agent_message_chunk", block.text, message)
                case Thinking() if is_main:
                    updates += self._show_block("agent_thought_chunk", block.thinking, message)
        return updates

    def _show_block(self, kind: str, text: str, message: Assistant) -> list[Json]:
        """A finished block, unless it was streamed."""
        was_streamed, self._streamed = text == self._streamed, ""
        id = message.message.id
        return [] if was_streamed or not text else [chunk(kind, text, id if isinstance(id, str) else "")]

    # Tool results, and the prompts of a stored session.

    def _show_user(self, message: User) -> list[Json]:
        content = message.message.content
        blocks = [Text({"type": "text", "text": content})] if isinstance(content, str) else content
        shows_prompt = self._shows_prompts and message.isSynthetic is not True
        updates: list[Json] = []
        for block in blocks:
            match block:
                case ToolResult():
                    updates += self._finish_call(block, message)
                case Text() if shows_prompt and not block.text.startswith(NOT_PROMPTS):
                    id = message.uuid if isinstance(message.uuid, str) else ""
                    updates.append(chunk("user_message_chunk", block.text, id))
                case Image() if shows_prompt and block.source.get("type") == "base64":
                    updates.append({"sessionUpdate": "user_message_chunk", "content": image_block(block.source)})
        return updates

    def _finish_call(self, result: ToolResult, message: User) -> list[Json]:
        running = self._running.pop(result.tool_use_id, None)
        if running is None:
            return []
        call = running.call
        if find_traits(call.name).work_list:
            return self._plan.finish(call, result) if running.is_main else []
        terminal = {}
        if self._terminals is not None and find_traits(call.name).effect == "runs_commands":
            terminal = self._terminals.close(result)
        shown = describe_result(call, result, message.tool_use_result)
        return [{"sessionUpdate": "tool_call_update", **shown, **terminal}]

    def _show_progress(self, message: ToolProgress) -> list[Json]:
        return self.start_call(message.tool_use_id)

    def start_call(self, call_id: str) -> list[Json]:
        """The update for a call that runs now."""
        if call_id not in self._running:
            return []
        return [{"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "in_progress"}]

    # Notices.

    def _show_status(self, message: Status) -> list[Json]:
        updates = self._show_compaction(message) if self._editor.shows_compactions else []
        if isinstance(mode := message.permissionMode, str):
            updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        return updates

    def _show_compaction(self, message: Status) -> list[Json]:
        if message.status == "compacting":
            if self._compaction:
                return []  # it still runs
            self._compaction = message.uuid if isinstance(message.uuid, str) else "compaction"
            return [compaction_update(self._compaction, "in_progress")]
        if not self._compaction or message.compact_result is UNSET:
            return []
        id, self._compaction = self._compaction, ""
        if message.compact_result == "success":
            return [compaction_update(id, "completed")]
        error = message.compact_error if isinstance(message.compact_error, str) else ""
        return [{**compaction_update(id, "cancelled" if error == "interrupted" else "failed"), "error": error}]

    def _show_retry(self, message: ApiRetry) -> list[Json]:
        reason = message.error_message if isinstance(message.error_message, str) else message.error
        text = f"The model call failed ({reason}); retry {message.attempt} of {message.max_retries} follows."
        return [self._notice(text, "warning")]

    def _show_information(self, message: Informational) -> list[Json]:
        return [self._notice(message.content, message.level)] if message.content.strip() else []

    def _notice(self, text: str, level: str) -> Json:
        """Text for the user that the model did not write."""
        if not self._editor.shows_notices:
            return chunk("agent_thought_chunk", f"{text}\n\n")
        title, _, rest = text.strip().partition("\n")
        severity = level if level in SEVERITIES else "info"
        about = {"description": rest.strip()} if rest.strip() else {}
        return {"sessionUpdate": "notice", "severity": severity, "title": title, **about}

    def _show_result(self, message: Result) -> list[Json]:
        models = message.modelUsage if isinstance(message.modelUsage, dict) else {}
        sizes = [usage.contextWindow for usage in models.values() if isinstance(usage.contextWindow, int)]
        updates = self._abandon()
        if sizes and self._used_tokens:
            update: Json = {"sessionUpdate": "usage_update", "used": self._used_tokens, "size": max(sizes)}
            if isinstance(message.total_cost_usd, int | float):
                update["cost"] = {"amount": message.total_cost_usd, "currency": "USD"}
            updates.append(update)
        return updates


CONTEXT_TOKENS = frozenset({"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"})
TRANSLATIONS: dict[type[Message], Callable[[UpdateTranslator, Any], list[Json]]] = {
    StreamEvent: UpdateTranslator._show_event,
    Assistant: UpdateTranslator._show_assistant,
    User: UpdateTranslator._show_user,
    ToolProgress: UpdateTranslator._show_progress,
    Status: UpdateTranslator._show_status,
    ApiRetry: UpdateTranslator._show_retry,
    Informational: UpdateTranslator._show_information,
    Result: UpdateTranslator._show_result,
}
"""Messages that an editor shows. Others are for programs."""


def chunk(kind: str, text: str, message_id: str = "") -> Json:
    """A part of a message."""
    id = {"messageId": message_id} if message_id else {}
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **id}


def compaction_update(id: str, status: str) -> Json:
    return {"sessionUpdate": "compaction_update", "compactionId": id, "status": status}
