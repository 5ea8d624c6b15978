"""The official TypeScript SDK drives our executable: on a pipe, and with its network clients through a gateway.

`DirectConnectTransport` and the browser entry are the packages as they are; see drivers/network.mjs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedError, ScriptedTurn
from parley.version import PROTOCOL_LEVEL, __version__
from tests.compat.harness import (
    ENGINE,
    FAULTS,
    FIRST,
    FIRST_BLOCKS,
    HELLO,
    HELLO_COST_USD,
    LONG,
    LONG_TEXTS,
    NO_RETRIES,
    PICTURE,
    QUESTION,
    SECOND,
    TALK,
    THOUGHT,
    Report,
    Stage,
    conversation,
    order,
    said,
)
from tests.compat.install import Client

pytest_plugins = ["tests.compat.clients"]


def kind(message: Any) -> str:
    """A message in one word: its type, or what tells it from others of its type."""
    names = {"system": message.get("subtype"), "stream_event": message.get("event", {}).get("type")}
    return str(names.get(message["type"]) or message["type"])


def only(report: Report, wanted: str) -> list[Any]:
    return [message for message in report.messages if kind(message) == wanted]


def spoken(report: Report) -> list[Any]:
    """The messages, without the reports about prompts with an id: the client on event streams gives each one."""
    return [message for message in report.messages if message["type"] != "command_lifecycle"]


def texts(report: Report) -> list[str]:
    found = [block for message in only(report, "assistant") for block in message["message"]["content"]]
    return [block["text"] for block in found if block["type"] == "text"]


def test_the_sdk_brings_no_engine_of_its_own(typescript_sdk: Client) -> None:
    packages = typescript_sdk.place / "node_modules" / "@anthropic-ai"

    assert sorted(path.name for path in packages.iterdir()) == ["claude-agent-sdk", "sdk"]
    assert not list(packages.glob("claude-agent-sdk/cli*"))
    assert not list(typescript_sdk.place.glob("node_modules/.bin/claude*"))


def test_the_sdk_spawns_our_executable_itself_and_not_through_node(typescript_on_a_pipe: Stage) -> None:
    report = typescript_on_a_pipe.run("query", [HELLO], prompt="Hi", spawn_ourselves=True)

    (spawn,) = report.of("spawn")
    assert spawn["command"] == str(ENGINE)
    streams = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
    assert spawn["args"] == [*streams, *(["--include-partial-messages"] if typescript_on_a_pipe.partial else [])]
    assert spawn["env"]["CLAUDE_CODE_ENTRYPOINT"] == "sdk-ts"
    assert report.of("exit") == [0]


def test_a_prompt_is_answered_by_our_engine_in_the_order_of_the_protocol(typescript_hello: Report) -> None:
    kinds = [kind(message) for message in spoken(typescript_hello)]
    assert kinds == order("assistant", "result", partial=typescript_hello.stage.partial)
    assert texts(typescript_hello) == ["Hello there."]
    (init,) = only(typescript_hello, "init")
    assert (init["parley_version"], init["claude_code_version"]) == (__version__, PROTOCOL_LEVEL)
    assert [conversation(request) for request in typescript_hello.requests] == [[("user", [said("Hi")])]]


def test_the_result_reports_what_was_said_and_what_it_cost(typescript_hello: Report) -> None:
    init, *_, result = spoken(typescript_hello)

    assert result == {
        **result,
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "session_id": init["session_id"],
        "result": "Hello there.",
        "stop_reason": "end_turn",
        "terminal_reason": "completed",
        "total_cost_usd": pytest.approx(HELLO_COST_USD),
        "usage": {**result["usage"], **HELLO.usage, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
        "permission_denials": [],
    }
    assert result["duration_ms"] >= result["duration_api_ms"] > 0
    (model,) = result["modelUsage"].values()
    assert (model["inputTokens"], model["outputTokens"]) == (1000, 100)


def test_partial_messages_spell_the_text(typescript_sdk: Client, tmp_path: Path) -> None:
    turn = ScriptedTurn(text="Hello there.", chunk_chars=3)
    report = Stage(typescript_sdk, tmp_path, partial=True).run("query", [turn], prompt="Hi")

    deltas = [message["event"]["delta"]["text"] for message in only(report, "content_block_delta")]
    assert deltas == ["Hel", "lo ", "the", "re."]


def test_the_second_prompt_of_a_stream_carries_the_first_turn(typescript_talk: Report) -> None:
    assert texts(typescript_talk) == ["One.", "Two."]
    results = only(typescript_talk, "result")
    assert [result["subtype"] for result in results] == ["success", "success"]
    assert results[0]["session_id"] == results[1]["session_id"]
    assert [conversation(request) for request in typescript_talk.requests] == [
        [("user", [said("Hello")])],
        [("user", [said("Hello")]), ("assistant", FIRST_BLOCKS), ("user", [said("Again")])],
    ]


def test_an_interrupt_ends_the_turn_and_the_next_one_works(typescript: Stage) -> None:
    report = typescript.run("stream", [LONG, SECOND], steps=[["ask_and_interrupt", "Talk"], ["ask", "Again"]])

    *heard, second = texts(report)
    assert second == "Two."
    assert "".join(LONG_TEXTS).startswith("".join(heard))
    assert report.of("receipt") == [{"still_queued": []}]
    interrupted, done = only(report, "result")
    assert (interrupted["subtype"], interrupted["terminal_reason"]) == ("error_during_execution", "aborted_streaming")
    assert (done["subtype"], done["is_error"]) == ("success", False)
    assert [exchange.complete for exchange in report.exchanges] == [False, True]
    assert conversation(report.requests[1]) == [
        ("user", [said("Talk")]),
        ("assistant", [said(text) for text in heard]),
        ("user", [said("[Request interrupted by user]"), said("Again")]),
    ]


def test_a_model_that_is_set_answers_the_next_turn(typescript: Stage) -> None:
    steps = [["ask", "Hello"], ["set_model", "claude-test-model"], ["ask", "Again"]]
    report = typescript.run("stream", [FIRST, SECOND], steps=steps)

    models = [request["model"] for request in report.requests]
    assert models[1] == "claude-test-model" != models[0]
    assert [message["model"] for message in only(report, "init")] == models
    assert only(report, "assistant")[-1]["message"]["model"] == "claude-test-model"


def test_the_initialization_result_is_what_the_engine_can_do(typescript: Stage) -> None:
    (info,) = typescript.run("stream", [], steps=[["server_info"]]).of("server_info")

    assert info["parley_version"] == __version__
    assert info["output_style"] in info["available_output_styles"]
    assert "default" in [model["value"] for model in info["models"]]
    assert isinstance(info["commands"], list)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.status))
@pytest.mark.parametrize("spawn_ourselves", [False, True], ids=["spawned", "spawned by us"])
def test_an_error_of_the_api_is_thrown_and_the_engine_exits_non_zero(
    typescript_on_a_pipe: Stage, fault: ScriptedError, spawn_ourselves: bool
) -> None:
    turn = ScriptedTurn(error=fault)
    report = typescript_on_a_pipe.run("query", [turn], prompt="Hi", env=NO_RETRIES, spawn_ourselves=spawn_ourselves)

    (text,) = texts(report)
    assert f"{fault.status} {fault.message}" in text
    names = {500: "server_error", 401: "authentication_failed"}
    assert only(report, "assistant")[0]["error"] == names[fault.status or 0]
    result = report.messages[-1]
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", True, text)
    assert result["api_error_status"] == fault.status
    assert report.of("raised") == [{"class": "Error", "text": f"Claude Code returned an error result: {text}"}]
    assert report.of("exit") == ([1] if spawn_ourselves else [])
    assert len(report.exchanges) == 1


def test_thinking_arrives_with_its_signature(typescript: Stage) -> None:
    report = typescript.run("query", [THOUGHT], prompt="Hi")

    assert [message["message"]["content"] for message in only(report, "assistant")] == [
        [{"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}],
        [said("Yes.")],
    ]


def test_an_image_reaches_the_model_unchanged(typescript: Stage) -> None:
    report = typescript.run("query", [HELLO], prompt=[PICTURE, QUESTION])

    assert conversation(report.requests[0]) == [("user", [PICTURE, QUESTION])]
    assert report.requests[0]["messages"][0]["content"][0] == PICTURE
    assert texts(report) == ["Hello there."]


def test_a_stream_continues_after_an_error(typescript: Stage) -> None:
    report = typescript.run("stream", [ScriptedTurn(error=FAULTS[0]), SECOND], steps=TALK, env=NO_RETRIES)

    assert [result["is_error"] for result in only(report, "result")] == [True, False]
    assert texts(report)[-1] == "Two."
    assert not report.of("raised")


def test_nothing_warns(typescript_hello: Report, typescript_talk: Report) -> None:
    assert typescript_hello.warnings() == []
    assert typescript_talk.warnings() == []


def test_the_sdk_lists_and_reads_what_our_engine_wrote(typescript_talk: Report) -> None:
    stage = typescript_talk.stage
    read = stage.run("sessions", [], directory=str(stage.directory))

    (session,) = read.of("session")
    assert session == {
        **session,
        "sessionId": typescript_talk.messages[-1]["session_id"],
        "summary": "Hello",
        "firstPrompt": "Hello",
        "cwd": str(stage.directory),
    }
    assert [(entry["type"], entry["message"]["content"]) for entry in read.of("entry")] == [
        ("user", "Hello"),
        *(("assistant", [block]) for block in FIRST_BLOCKS),
        ("user", "Again"),
        ("assistant", [said("Two.")]),
    ]
