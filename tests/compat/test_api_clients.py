"""The official clients of three APIs against `parley model-server`, and their types against what we send."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.models.http.response import EventReader
from parley.models.script import read_script
from parley.testing.model_server import ModelServer, running
from tests.compat.harness import DRIVERS, ENGINE, finish, installed
from tests.compat.install import LIBRARIES

SCRIPT = """\
at_end = "repeat"
[[turn]]
thinking = "A file would help."
text = "I will look."
tools = [{ name = "Read", id = "toolu_1", input = { file_path = "notes.txt" } }]
chunk_chars = 5
usage = { input_tokens = 7, output_tokens = 3, cache_read_input_tokens = 2 }
"""
ARGUMENTS = '{"file_path":"notes.txt"}'
PIECES = [ARGUMENTS[at : at + 5] for at in range(0, len(ARGUMENTS), 5)]
FAULTS = "rate-limit@3,reset=3@4,overloaded@5"


@contextmanager
def served(*argv: str) -> Iterator[str]:
    """The address of a model server that runs meanwhile."""
    with subprocess.Popen([str(ENGINE), "model-server", *argv], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(60) == 0


def told(driver: str, folder: Path, **variables: str) -> Any:
    program = installed(LIBRARIES).program()
    assert program is not None
    (folder / "script.toml").write_text(SCRIPT)
    with served("--script", str(folder / "script.toml"), "--fault", FAULTS) as url:
        environment = {name: value.format(url=url) for name, value in variables.items()}
        stdout, _ = finish([program, str(DRIVERS / f"{driver}.py")], {"HOME": str(folder), **environment}, folder)
    return json.loads(stdout)


def test_the_anthropic_package_streams_a_tool_call(tmp_path: Path) -> None:
    heard = told("messages_api", tmp_path, ANTHROPIC_BASE_URL="{url}", ANTHROPIC_API_KEY="a-key")
    _, text, call = heard["streamed"]["content"]

    assert heard["pieces"] == PIECES
    assert text["text"] == "I will look."
    assert {name: call[name] for name in ("type", "id", "name", "input")} == {
        "type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "notes.txt"},
    }  # fmt: skip
    assert heard["streamed"]["stop_reason"] == heard["whole"]["stop_reason"] == "tool_use"
    assert heard["streamed"]["usage"]["output_tokens"] == 3
    assert heard["whole"]["content"][2]["input"] == call["input"]
    assert heard["models"] == ["scripted"]
    assert heard["tokens"] > 0
    assert heard["raised"][0::2] == ["RateLimitError", "OverloadedError"]
    assert len(heard["raised"]) == 3


def test_the_openai_package_streams_a_tool_call(tmp_path: Path) -> None:
    heard = told("chat_api", tmp_path, OPENAI_BASE_URL="{url}/v1", OPENAI_API_KEY="a-key")
    choice = heard["streamed"]["choices"][0]
    (call,) = choice["message"]["tool_calls"]

    assert "".join(heard["pieces"]) == ARGUMENTS
    assert len(heard["pieces"]) > 1
    assert choice["message"]["content"] == "I will look."
    assert (call["id"], call["function"]["name"], call["function"]["arguments"]) == ("toolu_1", "Read", ARGUMENTS)
    assert choice["finish_reason"] == heard["whole"]["choices"][0]["finish_reason"] == "tool_calls"
    assert heard["streamed"]["usage"]["total_tokens"] == heard["whole"]["usage"]["total_tokens"] == 12
    assert heard["whole"]["choices"][0]["message"]["tool_calls"][0]["function"] == {
        "name": "Read",
        "arguments": ARGUMENTS,
    }
    assert heard["models"] == ["scripted"]
    assert heard["raised"][0::2] == ["RateLimitError", "InternalServerError"]
    assert len(heard["raised"]) == 3


def test_the_openai_package_streams_a_response(tmp_path: Path) -> None:
    heard = told("responses_api", tmp_path, OPENAI_BASE_URL="{url}/v1", OPENAI_API_KEY="a-key")
    thought, text, call = heard["streamed"]["output"]

    assert "".join(heard["pieces"]) == ARGUMENTS
    assert len(heard["pieces"]) > 1
    assert (thought["summary"][0]["text"], thought["encrypted_content"]) == ("A file would help.", "c2NyaXB0ZWQ=")
    assert text["content"][0]["text"] == heard["text"] == heard["again"] == "I will look."
    assert (call["call_id"], call["name"], call["arguments"]) == ("toolu_1", "Read", ARGUMENTS)
    assert heard["streamed"]["usage"]["total_tokens"] == heard["whole"]["usage"]["total_tokens"] == 12
    assert [item["type"] for item in heard["whole"]["output"]] == ["reasoning", "message", "function_call"]
    assert (heard["kinds"][0], heard["kinds"][-1]) == ("response.created", "response.completed")
    assert heard["raised"][0::2] == ["RateLimitError", "InternalServerError"]
    assert len(heard["raised"]) == 3


TALK = """\
at_end = "repeat"
[[turn]]
thinking = "A file would help."
text = "I will look."
tools = [{ name = "Read", input = { file_path = "dot.png" } }, { name = "Read", input = { file_path = "none" } }]
[[turn]]
text = "A dot."
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def stream_events(server: ModelServer) -> list[bytes]:
    body = json.dumps({"model": "m", "input": "Hi", "stream": True}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/v1/responses", body), timeout=60) as response:
        return EventReader().feed(response.read())


def test_our_requests_and_events_have_the_types_of_the_openai_package(tmp_path: Path) -> None:
    program = installed(LIBRARIES).program()
    assert program is not None
    (tmp_path / "dot.png").write_bytes(b64decode(PIXEL))
    with running(read_script(TALK, "here")) as server:
        spelled = [f'["event",{event.decode()}]' for event in stream_events(server)]
    with running(read_script(TALK, "here")) as server:
        environment = {"HOME": str(tmp_path), "OPENAI_BASE_URL": f"{server.url}/v1"}
        command = [str(ENGINE), "-p", "--model", "openai-responses:gpt-5", "--effort", "low", "Look"]
        stdout, _ = finish(command, environment, tmp_path)
        requests = [exchange.body for exchange in server.exchanges]
    (tmp_path / "lines.jsonl").write_text("\n".join([*spelled, *(json.dumps(["request", body]) for body in requests)]))
    judged, _ = finish([program, str(DRIVERS / "responses_shapes.py"), "lines.jsonl"], {}, tmp_path)

    assert stdout == "A dot.\n"
    assert [item["type"] for item in requests[-1]["input"]] == [
        "message", "reasoning", "message", "function_call", "function_call",
        "function_call_output", "function_call_output",
    ]  # fmt: skip
    assert len(spelled) > 20
    assert json.loads(judged) == []
