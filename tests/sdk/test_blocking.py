"""The client for programs without an event loop, on either kind of engine."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from parley import (
    AssistantMessage,
    CLIConnectionError,
    CLINotFoundError,
    HookMatcher,
    Options,
    PermissionResultAllow,
    ResultMessage,
)
from parley.sync import Client, query
from sdk.stage import Stage, children, kinds
from sdk.test_callbacks import WRITE
from sdk.test_client import SLOW, TURN


def test_a_query_is_a_plain_loop(stage: Stage, engine: str) -> None:
    assert kinds(list(query(prompt="Hi", options=stage.options(engine)))) == TURN


def test_leaving_the_loop_ends_the_engine(stage: Stage, engine: str) -> None:
    messages = query(prompt="Hi", options=stage.options(engine))
    next(messages)
    messages.close()  # type: ignore[attr-defined]  # it is a generator

    assert children() == set()
    assert [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()] == []


def test_a_conversation_goes_turn_after_turn(stage: Stage, engine: str) -> None:
    with Client(stage.options(engine)) as client:
        turn = client.ask("one")
        assert kinds(list(turn))[-3:] == TURN
        assert (turn.text(), turn.state) == ("Hello.", "completed")
        client.query("two")
        assert kinds(list(client.receive_response())) == TURN
        assert client.session_id == (turn.result and turn.result.session_id)
        assert client.do(lambda inner: inner.get_context_usage())["maxTokens"] > 0
        client.set_permission_mode("acceptEdits")


def test_an_interrupt_comes_between(stage: Stage, engine: str) -> None:
    script = SLOW.replace("sleep 1", "sleep 60")
    with Client(stage.options(engine, script, permission_mode="bypassPermissions")) as client:
        turn = client.ask("begin")
        for message in turn:
            if isinstance(message, AssistantMessage):
                client.interrupt()

    assert isinstance(turn.result, ResultMessage)
    assert turn.result.is_error


def test_callbacks_may_be_plain_functions(stage: Stage, engine: str) -> None:
    asked: list[str] = []

    def may(name: str, input: dict[str, Any], context: Any) -> PermissionResultAllow:
        asked.append(name)
        return PermissionResultAllow()

    def hook(input: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        asked.append(input["hook_event_name"])
        return {}

    async def stopped(input: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        asked.append("an async one")
        return {}

    hooks = {"PreToolUse": [HookMatcher(hooks=[hook])], "Stop": [HookMatcher(hooks=[stopped])]}  # type: ignore[list-item]
    list(query(prompt="go", options=stage.options(engine, WRITE), can_use_tool=may, hooks=hooks))

    assert asked == ["PreToolUse", "Write", "an async one"]


def test_a_callback_that_there_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="no callback 'on_party'"):
        Client(Options(), on_party=print)


def test_a_failed_start_leaves_nothing_behind(stage: Stage) -> None:
    with pytest.raises(CLINotFoundError), Client(stage.options("process", cli_path=stage.folder / "nothing")):
        pass

    assert [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()] == []


def test_nothing_can_be_asked_before_connect_and_after_close(stage: Stage, engine: str) -> None:
    client = Client(stage.options(engine))
    with pytest.raises(CLIConnectionError):
        client.ask("too early")
    client.connect()
    client.connect()
    client.close()
    client.close()
    with pytest.raises(CLIConnectionError):
        client.interrupt()


@dataclass
class City:
    name: str


def test_a_structured_result_is_a_value_of_the_type(stage: Stage) -> None:
    script = '[[turn]]\ntools = [{ name = "StructuredOutput", input = { name = "Ulm" } }]\n[[turn]]\ntext = "Done."\n'
    with Client(stage.options("local", script, output_type=City)) as client:
        assert client.ask("Which?").output() == City("Ulm")
