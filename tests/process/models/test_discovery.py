"""What servers say of their models: each answers as the real one does."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.compose.composer import Composer
from parley.compose.setup.model_server import ServedLimits, find_limits
from parley.protocol.base import Json, Struct
from tests.helpers.environment import base_environment
from tests.helpers.http_server import Line, read_request
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.session import SessionHarness

OLLAMA: Json = {
    "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "library"}]},
    "/api/show": {"parameters": "num_ctx    4096\nstop  x", "capabilities": ["completion", "thinking"]},
    "/api/ps": {"models": [{"name": "m:latest", "context_length": 8192}]},
}
SERVERS: dict[str, tuple[Json, ServedLimits]] = {
    "Ollama": (OLLAMA, ServedLimits(context_window=8192, has_tools=False, has_reasoning=True)),
    "Ollama before the model is loaded": (
        {**OLLAMA, "/api/ps": {"models": []}},
        ServedLimits(context_window=4096, has_tools=False, has_reasoning=True),
    ),
    "llama.cpp": (
        {
            "/v1/models": {"data": [{"id": "m", "meta": {"n_ctx_train": 131072}}]},
            "/props": {"default_generation_settings": {"n_ctx": 16384}, "chat_template_caps": {"supports_tools": True}},
        },
        ServedLimits(context_window=16384, has_tools=True),
    ),
    "vLLM": ({"/v1/models": {"data": [{"id": "m", "max_model_len": 32768}]}}, ServedLimits(context_window=32768)),
    "OpenRouter": (
        {
            "/v1/models": {
                "data": [{"id": "m", "context_length": 65536, "supported_parameters": ["tools", "reasoning"]}]
            }
        },
        ServedLimits(context_window=65536, has_tools=True, has_reasoning=True),
    ),
    "LM Studio": (
        {
            "/v1/models": {"data": [{"id": "m"}]},
            "/api/v0/models": {"data": [{"id": "m", "loaded_context_length": 4096, "capabilities": ["tool_use"]}]},
        },
        ServedLimits(context_window=4096, has_tools=True, has_reasoning=False),
    ),
    "another model": ({"/v1/models": {"data": [{"id": "x", "max_model_len": 32768}]}}, ServedLimits()),
    "nonsense": ({"/v1/models": [1], "/api/show": [2], "/props": 3, "/api/v0/models": {"data": 4}}, ServedLimits()),
    "nothing": ({}, ServedLimits()),
}


def event(delta: Json, finish: str | None = None) -> bytes:
    return (
        b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + b"\n\n"
    )


def call(file: str) -> bytes:
    function = {"name": "Read", "arguments": msgspec.json.encode({"file_path": file}).decode()}
    return event({"tool_calls": [{"index": 0, "id": file, "function": function}]}, "tool_calls")


class Server(Struct):
    url: str
    heard: list[tuple[str, Json]]


@asynccontextmanager
async def serving(routes: Json, *answers: bytes) -> AsyncIterator[Server]:
    """A server with these JSON answers by path, and these answers of the model."""
    remaining, server = list(answers), Server("", [])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        path = request.line.split()[1]
        server.heard.append((path, msgspec.json.decode(request.body) if request.body else {}))
        if path.endswith("/chat/completions"):
            status, body, kind = 200, remaining.pop(0) + b"data: [DONE]\n\n", "text/event-stream"
        else:
            status, body, kind = (
                (200 if path in routes else 404),
                msgspec.json.encode(routes.get(path)),
                "application/json",
            )
        line = Line(reader, writer)
        await line.begin(status, {"content-type": kind, "content-length": str(len(body)), "connection": "close"})
        await line.write(body)
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        yield server


def open_session(folder: Path, server: Server, **options: Any) -> SessionHarness:
    harness = SessionHarness(folder, "", model="openai:m", no_session_persistence=True, **options)
    harness.environment |= {"OPENAI_BASE_URL": server.url}
    return harness


@pytest.mark.parametrize("name", SERVERS)
async def test_what_a_server_says_of_its_model(tmp_path: Path, name: str) -> None:
    routes, expected = SERVERS[name]
    async with serving(routes) as server:
        harness = open_session(tmp_path, server)
        composer = Composer(harness.options, harness.environment, str(tmp_path), harness.stamp)
        found = await asyncio.to_thread(find_limits, composer.models, "m")

    assert found == expected


async def test_the_window_is_asked_for_once_the_conversation_is_long_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words\n" * 2_000)
    say = event({"content": "Done."}, "stop")
    routes = {**OLLAMA, "/api/ps": {"models": [{"name": "m", "context_length": 32_768}]}}
    async with serving(routes, call("a.txt"), say, say) as server:
        harness = open_session(tmp_path, server)
        async with harness:
            conversation = harness.session.conversation
            assumed = conversation.window
            harness.prompt("go")
            await harness.receive("result")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while conversation.window == assumed:
                    await harness.request("get_settings")
            harness.prompt("again")
            result = await harness.receive("result")
        paths = [path for path, _ in server.heard]
        calls = [body for path, body in server.heard if path.endswith("completions")]

    assert (assumed, conversation.window, conversation.answer_tokens) == (200_000, 32_768, 8192)
    assert [usage["contextWindow"] for usage in result["modelUsage"].values()] == [32_768]
    assert paths[:2] == ["/v1/chat/completions"] * 2
    assert [body.get("max_tokens") for body in calls] == [None, None, 8192]
    assert "warning: the server of openai:m says that it has no tools." in "\n".join(harness.warnings)


async def test_the_check_of_a_model_shows_what_its_server_says(tmp_path: Path) -> None:
    async with serving(OLLAMA, event({"content": "OK"}, "stop")) as server:
        environment = {**base_environment(), "HOME": str(tmp_path), "OPENAI_BASE_URL": server.url}
        check = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "parley", "models", "--check", "openai:m"), env=environment, stdout=PIPE
        )
        output, _ = await check.communicate()

    assert output.decode().rstrip().endswith(" ms, window 8,192, no tools, reasoning)")


async def test_what_the_user_says_of_a_window_applies_whatever_the_server_says(tmp_path: Path) -> None:
    entry = '{"models": {"openai:": {"contextWindow": 5000}}}'
    async with serving(OLLAMA) as server:
        harness = open_session(tmp_path, server, settings=entry)
        async with harness:
            config = harness.session.config.model
            await asyncio.to_thread(config.discover, harness.session.conversation.model)

            assert config.get_info(harness.session.conversation.model).context_window == 5000
