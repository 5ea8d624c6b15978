"""One suite for every backend: the client sees the same messages with each of them.

Each scenario is a script and the prompts of a session. It runs on the Messages API, on chat completions and on the
Responses API over HTTP, on the script itself, and on a recording of the first. The messages must be equal.
"""

from __future__ import annotations

from base64 import b64decode
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import read_script
from parley.protocol.base import Struct
from parley.testing.model_server import ModelServer
from tests.helpers.session import Json, SessionHarness

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
NOTES = '{ name = "Read", input = { file_path = "notes.txt" } }'
OTHER = '{ name = "Read", input = { file_path = "other.txt" } }'
LOOK = '{ name = "Read", input = { file_path = "dot.png" } }'
BUSY = '[[turn]]\nerror = { status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 0 }\n'


class Scenario(Struct, frozen=True, kw_only=True):
    script: str
    prompts: tuple[Any, ...] = ("go",)
    options: dict[str, Any] = {}
    seen: tuple[Any, ...]
    """What the client sees, as `view` shows it."""


def said(*texts: str) -> tuple[Any, ...]:
    return tuple(("assistant", "text", text) for text in texts)


def called(path: str) -> tuple[Any, ...]:
    return ("assistant", "tool_use", "Read", {"file_path": path})


def result(text: str | None, stop: str | None = "end_turn", **more: Any) -> tuple[Any, ...]:
    return ("result", more.pop("subtype", "success"), text, stop, more)


READ = {"notes.txt": "1\tnotes", "other.txt": "1\tother"}

SCENARIOS = {
    "text": Scenario(
        script="[[turn]]\ntext = 'Hello.'\nchunk_chars = 2\n",
        seen=(*said("Hello."), result("Hello.")),
    ),
    "two turns": Scenario(
        script="[[turn]]\ntext = 'One.'\n[[turn]]\ntext = 'Two.'\n",
        prompts=("first", "second"),
        seen=(*said("One."), result("One."), *said("Two."), result("Two.")),
    ),
    "thinking": Scenario(
        script="[[turn]]\nthinking = 'Hm.'\ntext = 'Yes.'\n",
        seen=(("assistant", "thinking", "Hm."), *said("Yes."), result("Yes.")),
    ),
    "a tool": Scenario(
        script=f"[[turn]]\ntext = 'I look.'\ntools = [{NOTES}]\n[[turn]]\ntext = 'Seen.'\n",
        seen=(*said("I look."), called("notes.txt"), ("tool", READ["notes.txt"]), *said("Seen."), result("Seen.")),
    ),
    "parallel tools": Scenario(
        script=f"[[turn]]\ntools = [{NOTES}, {OTHER}]\n[[turn]]\ntext = 'Both.'\n",
        seen=(
            called("notes.txt"),
            called("other.txt"),
            ("tool", READ["notes.txt"]),
            ("tool", READ["other.txt"]),
            *said("Both."),
            result("Both."),
        ),
    ),
    "arguments that are no JSON": Scenario(
        script="[[turn]]\ntools = [{ name = 'Read', input = '{\"file_p' }]\n[[turn]]\ntext = 'Oh.'\n",
        seen=(
            ("assistant", "tool_use", "Read", {"__unparsedToolInput": {"raw": '{"file_p', "len": 8}}),
            ("tool", "error"),
            *said("Oh."),
            result("Oh."),
        ),
    ),
    "an image": Scenario(
        script="[[turn]]\ntext = 'A dot.'\n",
        prompts=([{"type": "text", "text": "What is it?"}, IMAGE],),
        seen=(*said("A dot."), result("A dot.")),
    ),
    "an error that passes": Scenario(
        script=f"{BUSY}{BUSY}[[turn]]\ntext = 'At last.'\n",
        seen=(("retry", 1, 529), ("retry", 2, 529), *said("At last."), result("At last.")),
    ),
    "a rate limit": Scenario(
        script="[[turn]]\ntext = 'Hi.'\nfault = 'rate-limit-wait=0'\n[[turn]]\ntext = 'Hi.'\n",
        seen=(("retry", 1, 429), *said("Hi."), result("Hi.")),
    ),
    "a connection that breaks before the answer": Scenario(
        script="[[turn]]\ntext = 'Hi.'\nfault = 'reset=0'\n[[turn]]\ntext = 'Hi.'\n",
        seen=(("retry", 1, None), *said("Hi."), result("Hi.")),
    ),
    "a stream that breaks in its thinking": Scenario(
        script="[[turn]]\nthinking = 'Hm, hm.'\ntext = 'Yes.'\nchunk_chars = 2\nfault = 'reset=4'\n"
        "[[turn]]\nthinking = 'Oh.'\ntext = 'Yes.'\n",
        seen=(("retry", 1, None), ("assistant", "thinking", "Oh."), *said("Yes."), result("Yes.")),
    ),
    "a stream that ends in its text": Scenario(
        script="[[turn]]\ntext = 'Hello there.'\nchunk_chars = 2\nfault = 'truncated=5'\n[[turn]]\ntext = 'Hi.'\n",
        seen=(("retry", 1, None), *said("Hi."), result("Hi.")),
    ),
    "an event that is no JSON": Scenario(
        script="[[turn]]\ntext = 'Hello there.'\nchunk_chars = 2\nfault = 'malformed=4'\n[[turn]]\ntext = 'Hi.'\n",
        seen=(("retry", 1, None), *said("Hi."), result("Hi.")),
    ),
    "half a tool call": Scenario(
        script=f"[[turn]]\ntools = [{NOTES}]\nfault = 'half-tool-call'\n[[turn]]\ntext = 'Hi.'\n",
        seen=(("retry", 1, None), *said("Hi."), result("Hi.")),
    ),
    "an image of a tool": Scenario(
        script=f"[[turn]]\ntools = [{LOOK}]\n[[turn]]\ntext = 'A dot.'\n",
        seen=(called("dot.png"), ("tool", "image"), *said("A dot."), result("A dot.")),
    ),
    "an error that stays": Scenario(
        script="[[turn]]\nerror = { status = 403, type = 'permission_error', message = 'not you' }\n",
        seen=(("assistant", "error", "authentication_failed"), result("error", "stop_sequence", status=403)),
    ),
    "an unknown model": Scenario(
        script="[[turn]]\nerror = { status = 404, type = 'not_found_error', message = 'model: x' }\n",
        seen=(("assistant", "error", "model_not_found"), result("error", "stop_sequence", status=404)),
    ),
    "a length that is reached": Scenario(
        script="[[turn]]\ntext = 'Cut o'\nstop_reason = 'max_tokens'\n",
        seen=(*said("Cut o"), result("Cut o", "max_tokens")),
    ),
    "a refusal": Scenario(
        script="[[turn]]\ntext = 'No.'\nstop_reason = 'refusal'\n",
        seen=(*said("No."), result("No.", "refusal")),
    ),
    "a limit of turns": Scenario(
        script=f"at_end = 'repeat'\n[[turn]]\ntools = [{NOTES}]\n",
        options={"max_turns": 2},
        seen=(
            called("notes.txt"),
            ("tool", READ["notes.txt"]),
            called("notes.txt"),
            ("tool", "any"),
            result(None, "tool_use", subtype="error_max_turns"),
        ),
    ),
    "structured output": Scenario(
        script="[[turn]]\ntools = [{ name = 'StructuredOutput', input = { n = 7 } }]\n[[turn]]\ntext = 'Given.'\n",
        options={"json_schema": SCHEMA},
        seen=(("assistant", "tool_use", "StructuredOutput", {"n": 7}), ("tool", "any"), ("output", {"n": 7})),
    ),
}


def view(line: Json) -> list[Any]:
    """The part of a message that must be equal everywhere: no ids, numbers or model names."""
    match line:
        case {"type": "assistant", "error": str() as error}:
            return [("assistant", "error", error)]
        case {"type": "assistant"}:
            return [("assistant", *block_view(block)) for block in line["message"]["content"]]
        case {"type": "user", "message": {"content": list() as blocks}}:
            return [("tool", result_view(block)) for block in blocks]
        case {"type": "system", "subtype": "api_retry"}:
            return [("retry", line["attempt"], line["error_status"])]
        case {"type": "result", "structured_output": output}:
            return [("output", output)]
        case {"type": "result"}:
            status = {"status": line["api_error_status"]} if line.get("api_error_status") else {}
            text = "error" if status else line.get("result")
            return [("result", line["subtype"], text, line["stop_reason"], status)]
    return []


def result_view(block: Json) -> str:
    if block.get("is_error"):
        return "error"
    content: Any = block["content"]
    return content if isinstance(content, str) else "+".join(part["type"] for part in content)


def block_view(block: Json) -> tuple[Any, ...]:
    if block["type"] == "tool_use":
        return "tool_use", block["name"], block["input"]
    return block["type"], block[block["type"]]


class Seen(Struct):
    lines: list[Json]
    bodies: list[Any]


async def played(folder: Path, scenario: Scenario, environment: dict[str, str], **options: Any) -> list[Json]:
    """The messages of a session with these prompts."""
    harness = SessionHarness(folder, "", **{"no_session_persistence": True, **scenario.options, **options})
    harness.environment = {**harness.environment, **environment}
    async with harness:
        for number, prompt in enumerate(scenario.prompts):
            harness.prompt(prompt, uuid=f"10000000-0000-4000-8000-{number:012d}")
            await harness.receive("result")
    return harness.lines


async def over_http(folder: Path, scenario: Scenario, kind: str, **options: Any) -> Seen:
    async with ModelServer(read_script(scenario.script, "scenario")) as server:
        environment = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        model = {"anthropic": "sonnet", "openai": "openai:any", "responses": "openai-responses:any"}[kind]
        lines = await played(folder, scenario, environment, model=model, **options)
        return Seen(lines, [exchange.body for exchange in server.exchanges])


async def from_script(folder: Path, scenario: Scenario) -> Seen:
    (folder / "scenario.toml").write_text(scenario.script)
    return Seen(await played(folder, scenario, {}, model="scripted:scenario.toml"), [])


async def from_tape(folder: Path, scenario: Scenario) -> Seen:
    await over_http(folder, scenario, "anthropic", record="tape.jsonl")
    return Seen(await played(folder, scenario, {}, model="replay:tape.jsonl"), [])


BACKENDS: dict[str, Any] = {
    "anthropic": lambda folder, scenario: over_http(folder, scenario, "anthropic"),
    "openai": lambda folder, scenario: over_http(folder, scenario, "openai"),
    "responses": lambda folder, scenario: over_http(folder, scenario, "responses"),
    "scripted": from_script,
    "replay": from_tape,
}

OVER_HTTP = ("anthropic", "openai", "responses")


async def seen_on(backend: str, folder: Path, scenario: Scenario) -> Seen:
    (folder / "notes.txt").write_text("notes")
    (folder / "other.txt").write_text("other")
    (folder / "dot.png").write_bytes(b64decode(PIXEL))
    seen: Seen = await BACKENDS[backend](folder, scenario)
    return seen


def in_order(parts: list[Any]) -> list[Any]:
    """Read-only calls run concurrently, so their results are sorted by text."""
    found: list[Any] = []
    for is_tool, run in groupby(parts, key=lambda part: part[0] == "tool"):
        together = list(run)
        found += sorted(together, key=repr) if is_tool else together
    return found


def matches(seen: list[Any], expected: tuple[Any, ...]) -> bool:
    same = len(seen) == len(expected)
    seen, expected = in_order(seen), tuple(in_order(list(expected)))
    return same and all(a == b or b == (a[0], "any") for a, b in zip(seen, expected, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_host_sees_the_same_on_every_backend(name: str, backend: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    seen = [part for line in (await seen_on(backend, tmp_path, scenario)).lines for part in view(line)]

    assert matches(seen, scenario.seen), seen


@pytest.mark.parametrize(
    ("backend", "kinds"),
    [
        ("anthropic", ["text", "image"]),
        ("openai", ["text", "image_url"]),
        ("responses", ["input_text", "input_image"]),
    ],
)
async def test_an_image_reaches_the_backend(backend: str, kinds: list[str], tmp_path: Path) -> None:
    [body] = (await seen_on(backend, tmp_path, SCENARIOS["an image"])).bodies

    assert [part["type"] for part in conversation(body)[-1]["content"]] == kinds
    assert PIXEL in str(body)


@pytest.mark.parametrize("backend", OVER_HTTP)
async def test_an_image_of_a_tool_reaches_the_backend(backend: str, tmp_path: Path) -> None:
    _, body = (await seen_on(backend, tmp_path, SCENARIOS["an image of a tool"])).bodies

    assert PIXEL in str(conversation(body)[-1])


@pytest.mark.parametrize("backend", OVER_HTTP)
async def test_the_next_request_begins_with_the_messages_of_the_last(backend: str, tmp_path: Path) -> None:
    first, second = map(conversation, (await seen_on(backend, tmp_path, SCENARIOS["a tool"])).bodies)

    assert unmarked(second)[: len(first)] == unmarked(first)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_usage_of_a_turn_is_that_of_its_calls(backend: str, tmp_path: Path) -> None:
    used = "usage = { input_tokens = 7, output_tokens = 3, cache_read_input_tokens = 2 }\n"
    script = f"[[turn]]\ntools = [{NOTES}]\n{used}[[turn]]\ntext = 'Seen.'\n{used}"
    lines = (await seen_on(backend, tmp_path, Scenario(script=script, seen=()))).lines
    [usage] = [line["usage"] for line in lines if line["type"] == "result"]

    assert [usage[name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")] == [14, 4, 6]


def conversation(body: Json) -> list[Json]:
    """The messages of a request, or its input items."""
    found: list[Json] = body["messages"] if "messages" in body else body["input"]
    return found


def unmarked(value: Any) -> Any:
    """The same without cache markers."""
    if isinstance(value, dict):
        return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmarked(inner) for inner in value] if isinstance(value, list) else value
