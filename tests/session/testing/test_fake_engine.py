"""Our client with a fake engine in the same process: a scenario decides what the client gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parley import (
    AssistantMessage,
    Client,
    HookMatcher,
    Options,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultMessage,
    StreamEvent,
    TextBlock,
    create_sdk_mcp_server,
    tool,
)
from parley.testing import expect, read_scenario, run_in_virtual_time, scenario_wire

ASK = '{ call = "Bash", input = { command = "ls" }, ask = true, result = "a.txt"%s }'


def turn(*steps: str, head: str = "", more: str = "") -> str:
    return f"{head}\n[[turn]]\n{more}\nsteps = [\n" + ",\n".join(steps) + "\n]\n"


async def talk(text: str, options: Options[Any], prompts: tuple[str, ...] = ("go",), *, partial: bool = False) -> Any:
    messages: list[Any] = []
    async with Client(options, transport=scenario_wire(read_scenario(text, "s.toml"), partial=partial)) as client:
        for prompt in prompts:
            await client.query(prompt)
            messages += [message async for message in client.receive_response()]
    return messages


def play(text: str, *prompts: str, partial: bool = False, **options: Any) -> Any:
    """All messages of a conversation."""
    _, messages = run_in_virtual_time(talk(text, Options(**options), prompts or ("go",), partial=partial))
    return messages


def answering(answer: Any) -> Callable[..., Any]:
    async def decide(name: str, given: Any, context: Any) -> Any:
        return answer

    return decide


def test_a_turn_is_what_the_scenario_says() -> None:
    messages = play(
        turn('{ think = "Hm." }', ASK % "", '{ say = "Done." }'), can_use_tool=answering(PermissionResultAllow())
    )

    expect(messages).tool("Bash", command="ls").allowed().returned("a.txt").said("Done.").turn_ended(text="Done.")


def test_a_denied_call_is_an_error_and_in_the_result() -> None:
    messages = play(turn(ASK % "", '{ say = "No." }'), can_use_tool=answering(PermissionResultDeny(message="not now")))

    expect(messages).tool("Bash").denied("not now").turn_ended(text="No.")


def test_an_answer_that_is_not_expected_fails_with_the_line_of_the_step() -> None:
    scenario = turn(ASK % ', expect = { behavior = "deny" }')
    messages = play(scenario, can_use_tool=answering(PermissionResultAllow()))

    error = (
        's.toml:5: found the answer {"behavior":"allow","updatedInput":{"command":"ls"}}, expected one that contains '
    )
    expect(messages).turn_ended("error_during_execution", text=f'{error}{{"behavior":"deny"}}')


@pytest.mark.parametrize(
    ("scenario", "prompts", "error"),
    [
        (turn(more='prompt = "notes"'), ["go"], "s.toml:2: found prompt 'go', expected one that contains 'notes'"),
        (turn(), ["one", "two"], "s.toml: found prompt 'two', expected no more prompts: the scenario has 1 turn"),
        (
            turn('{ hook = "Stop", expect = {} }'),
            ["go"],
            "s.toml:5: found no hook of the client, expected one for Stop",
        ),
    ],
)
def test_a_client_that_does_something_else_is_told(scenario: str, prompts: list[str], error: str) -> None:
    messages = play(scenario, *prompts)

    expect(messages[-1:]).turn_ended("error_during_execution", text=error, is_error=True)


def test_hooks_of_the_client_run_by_themselves_and_can_deny() -> None:
    seen: list[str] = []

    async def hook(given: Any, tool_use_id: str | None, context: Any) -> Any:
        seen.append(given["hook_event_name"])
        if given["hook_event_name"] != "PreToolUse":
            return {}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": "by a hook"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact")
    hooks = {event: [HookMatcher(matcher=None, hooks=[hook])] for event in events}
    messages = play(turn(ASK % "", '{ hook = "PreCompact" }'), hooks=hooks)

    expect(messages).tool("Bash").denied("by a hook").turn_ended()
    assert seen == ["UserPromptSubmit", "PreToolUse", "PreCompact", "Stop"]


def test_tools_of_the_client_are_called() -> None:
    @tool("add", "Adds.", {"a": int, "b": int})
    async def add(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}

    servers = {"own": create_sdk_mcp_server("own", tools=[add])}
    messages = play(turn('{ call = "mcp__own__add", input = { a = 1, b = 2 } }'), mcp_servers=servers)

    expect(messages).tool("mcp__own__add").returned("3").turn_ended()


def test_a_client_survives_pieces_of_lines_unknown_messages_and_wrong_ids() -> None:
    messages = play(
        turn(
            '{ say = "In pieces.", chunk_bytes = 7, chunk_delay_ms = 50 }',
            '{ send = { type = "from_the_future" } }',
            '{ send = { type = "control_response", response = { subtype = "success", request_id = "never-asked" } } }',
            '{ send = { type = "control_cancel_request", request_id = "never-asked" } }',
            '{ call = "Read", id = "t1", result = "a", result_id = "t2" }',
            '{ raw = "" }',
            '{ say = "Long. ", pad_to_bytes = 2_000_000 }',
        )
    )

    expect(messages).said("In pieces.").said("Long.").turn_ended()
    texts = [
        block.text
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    assert [len(text) for text in texts] == [10, 2_000_000]


@pytest.mark.parametrize(("step", "exit_code"), [("{ exit = 3 }", 3), ('{ kill = "SIGKILL" }', -9)])
def test_a_crash_in_the_middle_of_a_line_is_reported(step: str, exit_code: int) -> None:
    with pytest.raises(ProcessError) as raised:
        play(turn('{ say = "Half a line.", half = true }', '{ stderr = "out of memory" }', step))

    assert raised.value.exit_code == exit_code
    assert "out of memory" in str(raised.value)


def test_an_interrupt_ends_the_turn() -> None:
    async def interrupted() -> list[Any]:
        scenario = turn('{ say = "I begin." }', "{ wait_ms = 86_400_000 }", '{ say = "Never." }')
        messages = []
        async with Client(Options(), transport=scenario_wire(read_scenario(scenario))) as client:
            await client.query("go")
            async for message in client.receive_response():
                messages.append(message)
                if isinstance(message, AssistantMessage):
                    await client.interrupt()
        return messages

    seconds, messages = run_in_virtual_time(interrupted())

    expect(messages).said("I begin.").turn_ended("error_during_execution", is_error=True)
    assert seconds < 86_400


def test_requests_of_the_client_are_answered_as_the_scenario_says() -> None:
    async def ask() -> Any:
        rules = "on.set_model.error = 'no such model'\non.mcp_status.response = { mcpServers = [] }"
        rules += "\non.mcp_status.delay_ms = 5000"
        async with Client(Options(), transport=scenario_wire(read_scenario(rules))) as client:
            with pytest.raises(Exception, match="no such model"):
                await client.set_model("x")
            return await client.get_mcp_status()

    seconds, status = run_in_virtual_time(ask())

    assert (round(seconds), status) == (5, {"mcpServers": []})


def test_a_request_that_never_comes_ends_the_turn_with_the_line_of_the_step() -> None:
    wire = scenario_wire(read_scenario(turn('{ wait_for = "interrupt" }'), "s.toml"))

    async def leave() -> bytes:
        await wire.open()
        wire.write(b'{"type":"user","message":{"content":"go"}}\n')
        await wire.end_input()
        return b"".join([chunk async for chunk in wire.chunks()])

    _, written = run_in_virtual_time(leave())

    assert b"s.toml:5: found the end of the input, expected the control request interrupt" in written


def test_partial_messages_are_streamed_around_the_whole_one() -> None:
    messages = play(turn('{ say = "Hello." }'), partial=True, include_partial_messages=True)

    kinds = [
        message.event["type"] if isinstance(message, StreamEvent) else type(message).__name__ for message in messages
    ]
    assert kinds[1:] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "AssistantMessage",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ResultMessage",
    ]


def test_a_result_can_have_any_fields_and_the_last_turn_can_repeat() -> None:
    scenario = turn(head='at_end = "repeat"', more='result = { subtype = "error_max_turns", is_error = true }')
    messages = play(scenario, "one", "two", "three")

    results = [message for message in messages if isinstance(message, ResultMessage)]
    assert [(result.subtype, result.is_error) for result in results] == [("error_max_turns", True)] * 3
