"""The official Python SDK drives our executable, in its current and in an old release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.models.script import ScriptedError, ScriptedTurn
from parley.version import PROTOCOL_LEVEL, __version__
from tests.compat.harness import (
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
from tests.compat.install import CURRENT_PYTHON, Client

pytest_plugins = ["tests.compat.clients"]


def kind(message: Any) -> str:
    """A message in one word: its class, or what tells it from others of its class."""
    names = {"SystemMessage": message.get("subtype"), "StreamEvent": message.get("event", {}).get("type")}
    return str(names.get(message["class"]) or message["class"])


def only(report: Report, wanted: str) -> list[Any]:
    return [message for message in report.messages if kind(message) == wanted]


def texts(report: Report) -> list[str]:
    spoken = [block for message in only(report, "AssistantMessage") for block in message["content"]]
    return [block["text"] for block in spoken if block["class"] == "TextBlock"]


def test_the_sdk_brings_no_engine_of_its_own(python_sdk: Client) -> None:
    (package,) = python_sdk.place.glob("lib/python*/site-packages/claude_agent_sdk")

    assert [path.name for path in (package / "_bundled").iterdir()] == [".gitignore"]
    assert not list(python_sdk.place.glob("bin/claude*"))


def test_a_prompt_is_answered_by_our_engine_in_the_order_of_the_protocol(python_hello: Report) -> None:
    kinds = [kind(message) for message in python_hello.messages]
    assert kinds == order("AssistantMessage", "ResultMessage", partial=python_hello.stage.partial)
    assert texts(python_hello) == ["Hello there."]
    data = python_hello.messages[0]["data"]
    assert (data["parley_version"], data["claude_code_version"]) == (__version__, PROTOCOL_LEVEL)
    assert [conversation(request) for request in python_hello.requests] == [[("user", [said("Hi")])]]


def test_the_result_reports_what_was_said_and_what_it_cost(python_hello: Report) -> None:
    init, *_, result = python_hello.messages

    assert result == {
        **result,
        "class": "ResultMessage",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "session_id": init["data"]["session_id"],
        "result": "Hello there.",
        "stop_reason": "end_turn",
        "total_cost_usd": pytest.approx(HELLO_COST_USD),
        "usage": {**result["usage"], **HELLO.usage, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
        "structured_output": None,
    }
    assert result["duration_ms"] >= result["duration_api_ms"] > 0
    if python_hello.stage.client is CURRENT_PYTHON:
        (model,) = result["model_usage"].values()
        assert (model["inputTokens"], model["outputTokens"]) == (1000, 100)
        assert (result["terminal_reason"], result["errors"]) == ("completed", None)


def test_partial_messages_spell_the_text(python_sdk: Client, tmp_path: Path) -> None:
    turn = ScriptedTurn(text="Hello there.", chunk_chars=3)
    report = Stage(python_sdk, tmp_path, partial=True).run("query", [turn], prompt="Hi")

    deltas = [message["event"]["delta"]["text"] for message in only(report, "content_block_delta")]
    assert deltas == ["Hel", "lo ", "the", "re."]


def test_the_second_turn_of_a_client_carries_the_first(python_talk: Report) -> None:
    assert texts(python_talk) == ["One.", "Two."]
    results = only(python_talk, "ResultMessage")
    assert [result["subtype"] for result in results] == ["success", "success"]
    assert results[0]["session_id"] == results[1]["session_id"]
    assert [conversation(request) for request in python_talk.requests] == [
        [("user", [said("Hello")])],
        [("user", [said("Hello")]), ("assistant", FIRST_BLOCKS), ("user", [said("Again")])],
    ]


def test_an_interrupt_ends_the_turn_and_the_next_one_works(python: Stage) -> None:
    report = python.run("client", [LONG, SECOND], steps=[["ask_and_interrupt", "Talk"], ["ask", "Again"]])

    *spoken, second = texts(report)
    assert second == "Two."
    assert "".join(LONG_TEXTS).startswith("".join(spoken))
    interrupted, done = only(report, "ResultMessage")
    assert (interrupted["subtype"], interrupted["is_error"]) == ("error_during_execution", True)
    assert (done["subtype"], done["is_error"]) == ("success", False)
    assert [exchange.complete for exchange in report.exchanges] == [False, True]
    assert conversation(report.requests[1]) == [
        ("user", [said("Talk")]),
        ("assistant", [said(text) for text in spoken]),
        ("user", [said("[Request interrupted by user]"), said("Again")]),
    ]


def test_a_model_that_is_set_answers_the_next_turn(python: Stage) -> None:
    steps = [["ask", "Hello"], ["set_model", "claude-test-model"], ["ask", "Again"]]
    report = python.run("client", [FIRST, SECOND], steps=steps)

    assert report.requests[1]["model"] == "claude-test-model" != report.requests[0]["model"]
    assert [message["data"]["model"] for message in only(report, "init")] == [
        request["model"] for request in report.requests
    ]
    assert only(report, "AssistantMessage")[-1]["model"] == "claude-test-model"


def test_the_server_info_is_what_the_engine_can_do(python: Stage) -> None:
    (info,) = python.run("client", [], steps=[["server_info"]]).of("server_info")

    assert info["parley_version"] == __version__
    assert info["output_style"] in info["available_output_styles"]
    assert "default" in [model["value"] for model in info["models"]]
    assert isinstance(info["commands"], list)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.status))
def test_an_error_of_the_api_is_raised_and_the_engine_exits_non_zero(python: Stage, fault: ScriptedError) -> None:
    report = python.run("query", [ScriptedTurn(error=fault)], prompt="Hi", env=NO_RETRIES)

    (text,) = texts(report)
    assert f"{fault.status} {fault.message}" in text
    names = {500: "server_error", 401: "authentication_failed"}
    assert only(report, "AssistantMessage")[0]["error"] == names[fault.status or 0]
    result = report.messages[-1]
    assert (result["subtype"], result["is_error"], result["result"]) == ("success", True, text)
    (raised,) = report.of("raised")
    assert "exit code: 1" in raised["text"]
    if python.client is CURRENT_PYTHON:
        assert raised["classes"][:2] == ["ResultError", "ProcessError"]
        assert (raised["exit_code"], raised["result"], raised["api_error_status"]) == (1, text, fault.status)
    assert len(report.exchanges) == 1


def test_thinking_arrives_with_its_signature(python: Stage) -> None:
    report = python.run("query", [THOUGHT], prompt="Hi")

    assert [message["content"] for message in only(report, "AssistantMessage")] == [
        [{"class": "ThinkingBlock", "thinking": "Hm.", "signature": "c2lnbmVk"}],
        [{"class": "TextBlock", "text": "Yes."}],
    ]


def test_an_image_reaches_the_model_unchanged(python: Stage) -> None:
    report = python.run("query", [HELLO], prompt=[PICTURE, QUESTION])

    assert conversation(report.requests[0]) == [("user", [PICTURE, QUESTION])]
    assert report.requests[0]["messages"][0]["content"][0] == PICTURE
    assert texts(report) == ["Hello there."]


def test_a_client_continues_after_an_error(python: Stage) -> None:
    report = python.run("client", [ScriptedTurn(error=FAULTS[0]), SECOND], steps=TALK, env=NO_RETRIES)

    assert [result["is_error"] for result in only(report, "ResultMessage")] == [True, False]
    assert texts(report)[-1] == "Two."
    assert not report.of("raised")


def test_nothing_warns(python_hello: Report, python_talk: Report) -> None:
    assert python_hello.warnings() == []
    assert python_talk.warnings() == []


def test_the_sdk_lists_and_reads_what_our_engine_wrote(python_talk: Report) -> None:
    stage = python_talk.stage
    read = stage.run("sessions", [], directory=str(stage.directory))

    (session,) = read.of("session")
    assert session == {
        **session,
        "session_id": python_talk.messages[-1]["session_id"],
        "summary": "Hello",
        "first_prompt": "Hello",
        "cwd": str(stage.directory),
    }
    assert [(entry["type"], entry["message"]["content"]) for entry in read.of("entry")] == [
        ("user", "Hello"),
        *(("assistant", [block]) for block in FIRST_BLOCKS),
        ("user", "Again"),
        ("assistant", [said("Two.")]),
    ]
    assert {entry["session_id"] for entry in read.of("entry")} == {session["session_id"]}
