"""Servers that are silent, are not the API of a model, cut answers off, or lack what a session needs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.engine.session.config import SessionConfig
from parley.models.http.call import Deadlines
from parley.protocol.base import Json
from tests.helpers.http_server import Answer, Loopback, cut_off, loopback, silence, stream, whole
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.session import SessionHarness

HTML = b"<!doctype html><title>Login</title>"
PAGE = whole(200, HTML, {"content-type": "text/html; charset=utf-8"})


def event(**choice: Any) -> bytes:
    return b"data: " + msgspec.json.encode({"id": "c", "choices": [{"index": 0, **choice}]}) + b"\n\n"


HELLO = event(delta={"content": "Hello."})
STOP = event(delta={}, finish_reason="stop") + b"data: [DONE]\n\n"


class Impatient(SessionHarness):
    """A session that reports silence at once."""

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        return msgspec.structs.replace(setup, limits=msgspec.structs.replace(setup.limits, silence_seconds=0.1))


class Heard:
    def __init__(self, harness: SessionHarness, server: Loopback, result: Json) -> None:
        self.result = result
        self.text: str = result["result"]
        self.server = server
        self.lines = harness.lines


async def ask(
    folder: Path, *answers: Answer, path: str = "/v1", harness: Any = SessionHarness, **variables: str
) -> Heard:
    async with loopback(*answers) as server:
        session = harness(folder, "", model="openai:m", no_session_persistence=True)
        session.environment |= {"OPENAI_BASE_URL": server.url + path, "CLAUDE_CODE_MAX_RETRIES": "8", **variables}
        async with session:
            session.prompt("go")
            result = await session.receive("result")
        return Heard(session, server, result)


async def test_a_page_is_refused_at_once_with_its_type_and_address(tmp_path: Path) -> None:
    heard = await ask(tmp_path, PAGE, path="")

    assert heard.text == (
        f"API Error: {heard.server.url}/chat/completions answered with text/html instead of an event stream: it is not "
        f"the API of a model. Try OPENAI_BASE_URL={heard.server.url}/v1"
    )
    assert len(heard.server.heard) == 1


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_a_server_that_is_silent_is_reported_with_what_is_awaited(tmp_path: Path, is_recorded: bool) -> None:
    def harness(*parts: Any, **options: Any) -> SessionHarness:
        return Impatient(*parts, **options, record="answers.jsonl" if is_recorded else None)

    heard = await ask(tmp_path, silence(started=False), silence(started=False), harness=harness, API_TIMEOUT_MS="2000")
    notices = [line for line in heard.lines if line.get("tag") == "model_silent"]

    assert notices[0]["content"] == (
        f"{heard.server.url}/v1 has sent nothing: waiting for the beginning of the answer, for at most 2 s "
        "(silent for 0.1 s)"
    )
    # One for each call. A server of this machine that hangs is asked twice.
    assert len(notices) == len(heard.server.heard) == 2
    assert "sent nothing for 2 s" in heard.text


def test_a_server_that_lists_no_models_does_not_delay_a_signal(tmp_path: Path) -> None:
    asked, released, finished = threading.Event(), threading.Event(), threading.Event()

    def list_served() -> list[Json]:
        asked.set()
        released.wait(PATIENCE_SECONDS)
        finished.set()
        return []

    class Waiting(SessionHarness):
        def furnish(self, setup: SessionConfig) -> SessionConfig:
            return msgspec.structs.replace(setup, model=msgspec.structs.replace(setup.model, list_served=list_served))

    async def stop_at_once() -> None:
        async with Waiting(tmp_path, "") as harness:
            harness.send({"type": "control_request", "request_id": "r", "request": {"subtype": "list_models"}})
            assert await asyncio.to_thread(asked.wait, PATIENCE_SECONDS)
            harness.session.stop()

    asyncio.run(stop_at_once())
    assert not finished.is_set()
    released.set()


def test_a_server_on_this_machine_is_given_less_time() -> None:
    assert Deadlines().local_first_byte_seconds < Deadlines().first_byte_seconds
    assert Deadlines.from_settings({"first_byte_seconds": 900}).local_first_byte_seconds == 900


async def test_an_answer_that_is_cut_off_at_the_same_place_again_says_so(tmp_path: Path) -> None:
    heard = await ask(tmp_path, *[cut_off(HELLO)] * 3)

    assert heard.text.startswith("API Error: ")
    assert "It was cut off at the same place before: the server, or a proxy in front of it, may limit" in heard.text
    assert len(heard.server.heard) == 3


@pytest.mark.parametrize(
    ("status", "message", "advice"),
    [
        (400, "registry.ollama.ai/library/gemma does not support tools", "cannot call tools"),
        (500, "tools param requires --jinja flag", "start llama.cpp with --jinja"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', "vLLM with --enable-auto-tool-choice"),
        (400, "stream is not supported for this model", "Parley needs streamed answers"),
        (400, "the request exceeds the available context size (4096 tokens)", "Start the server with a larger context"),
    ],
)
async def test_what_a_server_lacks_comes_with_advice(tmp_path: Path, status: int, message: str, advice: str) -> None:
    refusal = whole(status, msgspec.json.encode({"error": {"message": message}}), {"content-type": "application/json"})
    heard = await ask(tmp_path, *[refusal] * 3, CLAUDE_CODE_MAX_RETRIES="0")

    assert message in heard.text
    assert advice in heard.text


async def test_azure_openai(tmp_path: Path) -> None:
    """What Azure differs in: the deployment in the path, a version in the query, a key header, an empty first chunk."""
    filtered = b'data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[]}\n\n'
    heard = await ask(
        tmp_path,
        stream(filtered, HELLO, STOP),
        path="/openai/deployments/chat?api-version=2024-10-21",
        OPENAI_CUSTOM_HEADERS="api-key: secret",
    )
    (request,) = heard.server.heard

    assert heard.text == "Hello."
    assert request.line == "POST /openai/deployments/chat/chat/completions?api-version=2024-10-21 HTTP/1.1"
    assert request.headers["api-key"] == "secret"
    assert "authorization" not in request.headers
