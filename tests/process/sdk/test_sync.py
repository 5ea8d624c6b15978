"""The client without `async`."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from parley import ClaudeSDKError, NotConnected, PermissionResultAllow, ResultMessage, SyncClient, query_sync
from tests.helpers.sdk import ClientHarness, kinds
from tests.process.sdk.test_callbacks import WRITE
from tests.process.sdk.test_client import TURN
from tests.process.sdk.test_lifecycle import BUSY


def test_a_conversation_needs_no_event_loop(harness: ClientHarness, engine: str) -> None:
    with SyncClient(harness.options(engine)) as client:
        turn = client.ask("Hi")
        assert isinstance(list(turn)[-1], ResultMessage)
        assert (turn.state, turn.result and turn.result.result) == ("completed", "Hello.")
        client.query("again")
        assert kinds(list(client.receive_response())) == TURN
        assert client.set_permission_mode("plan") == {"mode": "plan"}
        assert client.ask("and again").text() == "Hello."


def test_a_plain_callback_answers_and_cannot_wait_for_its_own_client(harness: ClientHarness, engine: str) -> None:
    problems: list[str] = []

    def may(*asked: Any) -> PermissionResultAllow:
        with pytest.raises(RuntimeError) as raised:
            client.set_permission_mode("plan")
        problems.append(str(raised.value))
        return PermissionResultAllow()

    with SyncClient(harness.options(engine, WRITE, can_use_tool=may)) as client:
        assert client.ask("go").text() == "Done."

    assert problems == ["a callback cannot use the SyncClient that called it: this would deadlock"]
    assert (harness.folder / "work" / "note.txt").exists()


def test_a_query_needs_no_event_loop(harness: ClientHarness, engine: str) -> None:
    assert kinds(list(query_sync(prompt="Hi", options=harness.options(engine)))) == TURN


def test_a_query_that_is_left_ends_with_its_thread(harness: ClientHarness, engine: str) -> None:
    for _ in query_sync(prompt="Hi", options=harness.options(engine, BUSY)):
        break
    gc.collect()

    assert [thread for thread in threading.enumerate() if thread.name == "parley client"] == []


def test_a_failed_start_leaves_no_thread(harness: ClientHarness, engine: str) -> None:
    with pytest.raises(ClaudeSDKError):
        SyncClient(harness.options(engine, session_id="no uuid")).connect()

    assert [thread for thread in threading.enumerate() if thread.name == "parley client"] == []


def test_nothing_can_be_asked_before_connect(harness: ClientHarness) -> None:
    client = SyncClient(harness.options("local"))

    with pytest.raises(NotConnected):
        client.interrupt()
    with pytest.raises(AttributeError):
        _ = client.no_such_method


def test_messages_before_the_end_can_be_read_after_it(harness: ClientHarness, engine: str) -> None:
    with SyncClient(harness.options(engine)) as client:
        client.query("Hi")
        turn = client.ask("Hi")
        turn.until("completed")
        rest = client.receive_messages()

    assert turn.text() == "Hello."
    assert isinstance(list(rest)[-1], ResultMessage)
    assert turn.until("cancelled") == "completed"
