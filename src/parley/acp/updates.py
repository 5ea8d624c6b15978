"""Translate the messages of an engine to the updates that an editor shows.

    translator = UpdateTranslator("/srv/app")
    translator.translate(message)    ->  [{"sessionUpdate": "agent_message_chunk", ...}]

Live messages and those of a stored session pass through the same code. Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from parley.acp.tool_calls import describe_call, describe_result, image_block
from parley.protocol.base import UNSET, Json, Message, Struct
from parley.protocol.blocks import Image, Text, Thinking, ToolResult, ToolUse
from parley.protocol.messages.conversation import Assistant, StreamEvent, User
from parley.protocol.messages.notices import ToolProgress
from parley.protocol.messages.result import Result
from parley.protocol.messages.system import ApiRetry, Informational, Status
from parley.tools.catalog import find_traits

TASK_NUMBER = re.compile(r"#(\w+)")
STATUSES = ("pending", "in_progress", "completed")


class EventBlock(Struct, frozen=True):
    type: str = ""


class EventDelta(Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""


class Event(Struct, frozen=True):
    """The parts of a stream event that are shown."""

    type: str
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

    def __init__(self, cwd: str, *, is_replay: bool = False) -> None:
        self._cwd = cwd
        self._is_replay = is_replay
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
        return [{"sessionUpdate": "tool_call", **describe_call(call, self._cwd)}]

    def _abandon(self) -> list[Json]:
        """The updates for calls of the turn that will have no result. Subagents may run on in the background."""
        ended = [each for each in self._running.values() if each.is_main]
        for each in ended:
            del self._running[each.call.id]
        return [
            {"sessionUpdate": "tool_call_update", "toolCallId": each.call.id, "status": "failed"}
            for each in ended
            if not find_traits(each.call.name).work_list
        ]

    # What the model writes.

    def _show_event(self, message: StreamEvent) -> list[Json]:
        if isinstance(message.parent_tool_use_id, str):
            return []
        event = msgspec.json.decode(message.event, type=Event)
        if event.type == "content_block_start":
            self._streamed = ""
        elif event.type == "content_block_delta" and (text := event.delta.text or event.delta.thinking):
            self._streamed += text
            return [chunk("agent_thought_chunk" if event.delta.thinking else "agent_message_chunk", text)]
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
                    updates += self._show_block("agent_message_chunk", block.text)
                case Thinking() if is_main:
                    updates += self._show_block("agent_thought_chunk", block.thinking)
        return updates

    def _show_block(self, kind: str, text: str) -> list[Json]:
        """A finished block, unless it was streamed."""
        was_streamed, self._streamed = text == self._streamed, ""
        return [] if was_streamed or not text else [chunk(kind, text)]

    # Tool results, and the prompts of a stored session.

    def _show_user(self, message: User) -> list[Json]:
        content = message.message.content
        blocks = [Text({"type": "text", "text": content})] if isinstance(content, str) else content
        shows_prompt = self._is_replay and message.isSynthetic is not True
        updates: list[Json] = []
        for block in blocks:
            match block:
                case ToolResult():
                    updates += self._finish_call(block, message)
                case Text() if shows_prompt:
                    updates.append(chunk("user_message_chunk", block.text))
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
        return [{"sessionUpdate": "tool_call_update", **describe_result(call, result, message.tool_use_result)}]

    def _show_progress(self, message: ToolProgress) -> list[Json]:
        return self.start_call(message.tool_use_id)

    def start_call(self, call_id: str) -> list[Json]:
        """The update for a call that runs now."""
        if call_id not in self._running:
            return []
        return [{"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "in_progress"}]

    # Notices.

    def _show_status(self, message: Status) -> list[Json]:
        mode = message.permissionMode
        return [{"sessionUpdate": "current_mode_update", "currentModeId": mode}] if isinstance(mode, str) else []

    def _show_retry(self, message: ApiRetry) -> list[Json]:
        reason = message.error_message if isinstance(message.error_message, str) else message.error
        text = f"The model call failed ({reason}); retry {message.attempt} of {message.max_retries} follows.\n\n"
        return [chunk("agent_thought_chunk", text)]

    def _show_information(self, message: Informational) -> list[Json]:
        return [chunk("agent_thought_chunk", f"{message.content}\n\n")]

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


def chunk(kind: str, text: str) -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
