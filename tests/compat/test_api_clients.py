"""The official clients of two APIs against `parley model-server`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.compat.harness import DRIVERS, ENGINE, finish, installed
from tests.compat.install import ANTHROPIC, OPENAI, Client

SCRIPT = """\
at_end = "repeat"
[[turn]]
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
            assert process.wait(10) == 0


def told(client: Client, driver: str, folder: Path, **variables: str) -> Any:
    program = installed(client).program()
    assert program is not None
    (folder / "script.toml").write_text(SCRIPT)
    with served("--script", str(folder / "script.toml"), "--fault", FAULTS) as url:
        environment = {name: value.format(url=url) for name, value in variables.items()}
        stdout, _ = finish([program, "-B", str(DRIVERS / f"{driver}.py")], {"HOME": str(folder), **environment}, folder)
    return json.loads(stdout)


def test_the_anthropic_package_streams_a_tool_call(tmp_path: Path) -> None:
    heard = told(ANTHROPIC, "messages_api", tmp_path, ANTHROPIC_BASE_URL="{url}", ANTHROPIC_API_KEY="a-key")
    text, call = heard["streamed"]["content"]

    assert heard["pieces"] == PIECES
    assert text["text"] == "I will look."
    assert {name: call[name] for name in ("type", "id", "name", "input")} == {
        "type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "notes.txt"},
    }  # fmt: skip
    assert heard["streamed"]["stop_reason"] == heard["whole"]["stop_reason"] == "tool_use"
    assert heard["streamed"]["usage"]["output_tokens"] == 3
    assert heard["whole"]["content"][1]["input"] == call["input"]
    assert heard["models"] == ["scripted"]
    assert heard["tokens"] > 0
    assert heard["raised"][0::2] == ["RateLimitError", "OverloadedError"]
    assert len(heard["raised"]) == 3


def test_the_openai_package_streams_a_tool_call(tmp_path: Path) -> None:
    heard = told(OPENAI, "chat_api", tmp_path, OPENAI_BASE_URL="{url}/v1", OPENAI_API_KEY="a-key")
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
