"""Messages of engines as programs see them, including those of other dialects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from parley import (
    AssistantMessage,
    CLIConnectionError,
    Client,
    HookJSONOutput,
    HookMatcher,
    Notice,
    Options,
    OtherBlock,
    PermissionResultDeny,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolPermissionContext,
    Unknown,
    Unreadable,
    UserMessage,
)
from parley.protocol.base import Role, decode
from parley.protocol.connection import may_send
from parley.sdk.runtime.message_parser import parse_message
from tests.helpers import paths
from tests.helpers.sdk import ClientHarness, run
from tests.process.sdk.test_lifecycle import fake_engine
from tests.unit.sdk.test_recorded_streams import Tape, heard

GOLDEN = paths.GOLDEN


def lines(name: str) -> list[Any]:
    return [json.loads(row)["line"] for row in (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", ["catalogue", "seeds"])
def test_every_line_an_engine_may_say_has_a_class(name: str) -> None:
    messages = [decode(json.dumps(line).encode()) for line in lines(name)]
    found = [parse_message(message) for message in messages if may_send(Role.ENGINE, message)]

    assert len(found) > 100
    assert [one for one in found if isinstance(one, Unknown | Unreadable)] == []


def said(*given: dict[str, Any]) -> list[Any]:
    return list(run("asyncio", heard, Tape(list(given))))


def test_an_error_is_read_wherever_an_engine_puts_it() -> None:
    inner = {"role": "assistant", "content": [], "model": "m"}
    outside, inside = said(
        {"type": "assistant", "message": inner, "error": "rate_limit"},
        {"type": "assistant", "message": {**inner, "error": "billing_error"}},
    )

    assert (outside.error, inside.error) == ("rate_limit", "billing_error")


def test_a_bare_error_is_a_notice_and_the_stream_continues() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    notice, end = said(error, {"type": "result", "subtype": "success"})

    assert notice == Notice("error", error)
    assert isinstance(end, ResultMessage)
    assert (end.is_error, end.num_turns, end.session_id) == (False, 0, "")


def test_what_no_one_knows_is_passed_on_whole() -> None:
    strange = {"type": "weather", "subtype": "rain", "wet": True}
    newer = {"type": "system", "subtype": "telepathy", "thought": "…"}
    unknown, system = said(strange, newer)

    assert unknown == Unknown("weather", "rain", strange)
    assert system == SystemMessage("telepathy", newer)


def test_blocks_without_a_class_are_kept() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    [message] = said({"type": "user", "message": {"role": "user", "content": [image, {"type": "text", "text": "t"}]}})

    assert isinstance(message, UserMessage)
    assert message.content == [OtherBlock("image", image), TextBlock("t")]


def test_the_flat_result_of_dialect_b_is_a_result() -> None:
    [message] = said(
        {"type": "result", "subtype": "error", "error": {"message": "no"}, "input_tokens": 3, "output_tokens": 4}
    )

    assert (message.is_error, message.errors) == (True, ["no"])
    assert (message.usage["input_tokens"], message.usage["output_tokens"]) == (3, 4)


def test_the_frames_of_dialect_d_are_what_is_inside() -> None:
    inner = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}}
    answer, end = said(
        {"jsonrpc": "2.0", "id": 1, "result": inner},
        {"jsonrpc": "2.0", "id": 1, "result": {"type": "result", "subtype": "success", "result": "Hi"}},
    )

    assert isinstance(answer, AssistantMessage)
    assert (answer.text, answer.raw, end.result) == ("Hi", inner, "Hi")


def test_questions_that_only_old_documents_show_are_answered() -> None:
    heard_by: list[Any] = []

    async def hook(input: Any, tool_use_id: str | None, context: Any) -> HookJSONOutput:
        heard_by.append(input)
        return {"continue_": True}

    async def may(name: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResultDeny:
        heard_by.append((context.suggestions, context.hints))
        return PermissionResultDeny(message="no")

    named = {"subtype": "hook_callback", "hook_name": "PreToolUse", "hook_data": {"tool": "Bash"}}
    asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "permission_suggestions": ["allow once"]}
    questions = [named, asked, {"subtype": "sdk_control_interrupt"}, {"subtype": "no_such_question"}]
    recording = Tape(
        [{"type": "control_request", "request_id": str(n), "request": one} for n, one in enumerate(questions)]
    )

    async def play() -> None:
        options = Options(can_use_tool=may, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})
        async with Client(options, transport=recording) as client:
            async for _ in client.receive_messages():
                pass

    run("asyncio", play)

    assert heard_by == [{"tool": "Bash"}, ([], ["allow once"])]
    assert recording.answers["0"]["response"] == {"continue": True}
    assert recording.answers["1"]["response"] == {"behavior": "deny", "message": "no"}
    assert recording.answers["2"]["subtype"] == "success"
    assert "no_such_question" in recording.answers["3"]["error"]


GREETER = """
import json
for line in sys.stdin:
    line = json.loads(line)
    answer = {"subtype": "success", "request_id": line["request_id"], "response": {}}
    sys.stdout.write(json.dumps({"type": "control_response", "response": answer}) + "\\n"); sys.stdout.flush()
"""


def test_an_engine_that_cannot_block_on_failed_hooks_is_not_used_for_hooks_that_must(harness: ClientHarness) -> None:
    async def hook(*told: Any) -> HookJSONOutput:
        return {}

    async def play(options: Options) -> None:
        await Client(options).connect()

    hooks = {"PreToolUse": [HookMatcher(hooks=[hook], on_failure="block")]}
    options = harness.options("process", cli_path=fake_engine(harness, GREETER), hooks=hooks)
    with pytest.raises(CLIConnectionError, match="on_failure"):
        run("asyncio", play, options)


async def nothing() -> AsyncIterator[dict[str, Any]]:
    return
    yield {}


def test_a_query_without_prompts_ends(harness: ClientHarness, engine: str) -> None:
    async def play(options: Options) -> list[Any]:
        from parley import query

        return [message async for message in query(prompt=nothing(), options=options)]

    assert run("asyncio", play, harness.options(engine)) == []
