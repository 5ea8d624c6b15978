"""Why a turn ended, where it did not end by itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from parley.engine.session.config import SessionConfig
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from tests.helpers.mcp import script
from tests.helpers.session import SessionHarness

MALFORMED = "[[turn]]\ntools = [{ name = 'Bash', input = '{\"command\": ' }]\n"


class FaultyBackend:
    """A backend of another package with a bug: it fails in the middle of an answer."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = message_json([{"type": "text", "text": "Hello"}], id="msg_1", model=request.model, usage=usage)
        for number, event in enumerate(synthesize_events(message, 40)):
            if number == 2:
                raise ValueError("a bug in the backend")
            yield event

    async def close(self) -> None:
        pass


class FaultySession(SessionHarness):
    def furnish(self, setup: SessionConfig) -> SessionConfig:
        return setup.with_model_opener(lambda choice: FaultyBackend())


async def test_a_bug_in_a_backend_is_a_model_error(tmp_path: Path) -> None:
    async with FaultySession(tmp_path, "") as harness:
        for _ in range(2):
            harness.prompt("Hi")
            result = await harness.receive("result")
            assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "model_error")
            assert result["errors"] == ["internal error: ValueError: a bug in the backend"]


async def test_a_turn_that_cannot_begin_says_so(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, script("Hello.")) as harness:
        harness.prompt(" ")
        result = await harness.receive("result")
        harness.prompt("Hi")
        good = await harness.receive("result")
    assert (result["is_error"], result["terminal_reason"]) == (True, "turn_setup_failed")
    assert result["fault_type"] == "validation_error"
    assert good["terminal_reason"] == "completed"


async def test_a_model_that_cannot_write_arguments_is_given_up(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, MALFORMED * 9 + script("Hello.")) as harness:
        harness.prompt("Hi")
        result = await harness.receive("result")
    assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "malformed_tool_use_exhausted")
    assert result["errors"] == ["The model called tools 5 times in a row with input that is not a JSON object"]
    assert result["num_turns"] == 5
    calls = list(harness.messages("assistant"))
    results = list(harness.messages("user"))
    assert len(calls) == len(results) == 5


async def test_a_model_that_corrects_itself_continues(tmp_path: Path) -> None:
    turns = MALFORMED * 4 + script([("Bash", {"command": "echo hi"})]) + MALFORMED * 4 + script("Hello.")
    async with SessionHarness(tmp_path, turns) as harness:
        harness.prompt("Hi")
        result = await harness.receive("result")
    assert (result["result"], result["terminal_reason"]) == ("Hello.", "completed")
