"""A wire log as a conversation that a test can play.

The format is that of `tests/transcripts/*.talk`, which `tests/helpers/talks.py` describes and plays:

    cwd PATH             the working directory of the session, which a test replaces by its own
    option NAME JSON     an option of the session
    model {"turn": …}    what the model answered, as a script
    >  {...}             a line to the engine
    <  {...}             a line of the engine with these fields

The model is played from what it said, and the tools run again. What differs between runs, such as ids, times, costs and
the output of tools, is left out of the lines of the engine. Ids that the engine chose are names that later lines
repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from parley.inspector.recording import Record
from parley.protocol.base import Json
from parley.protocol.options import parse

UNPLAYED = frozenset({"model", "session_id", "resume", "print", "input_format", "output_format", "verbose"})
"""Options that a test sets itself."""
SYNTHETIC = "<synthetic>"


def make_recording(cwd: str, argv: Sequence[str], records: Iterable[Record]) -> bytes:
    """`argv`: the options of the session."""
    messages = [(direction, line) for _, _, direction, _, line in records if isinstance(line, dict)]
    names = {
        str(line.get("request_id")): f"$request{number}"
        for number, line in enumerate(
            (line for direction, line in messages if direction == "out" and line.get("type") == "control_request"), 1
        )
    }
    out = ["# Exported by the gateway.", f"cwd {cwd}", *list_options(argv)]
    turns = list_turns([line for direction, line in messages if direction == "out"])
    out.append(f"model {encode({'turn': list(turns)})}")
    for direction, line in messages:
        if direction == "in":
            out.append(f">  {encode(rename_request(line, names))}")
        elif (shown := stable_part(line)) is not None:
            out.append(f"<  {encode(rename_request(shown, names))}")
    return "".join(f"{line}\n" for line in out).encode()


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def list_options(argv: Sequence[str]) -> Iterator[str]:
    options = parse(argv).options
    for name in sorted(options.given):
        if name not in UNPLAYED:
            yield f"option {name} {encode(getattr(options, name))}"


def list_turns(lines: Sequence[Json]) -> Iterator[Json]:
    """What the model answered, one turn per call. Blocks of one answer come as messages with one id."""
    turns: dict[str, Json] = {}
    for number, line in enumerate(lines):
        message = line.get("message")
        if line.get("type") == "assistant" and isinstance(message, dict) and message.get("model") != SYNTHETIC:
            turn = turns.setdefault(str(message.get("id")), {"blocks": []})
            turn["blocks"] += message.get("content") or []
        elif line.get("type") == "result" and isinstance(line.get("api_error_status"), int):
            error = {"status": line["api_error_status"], "message": str(line.get("result") or "")}
            turns[f"error {number}"] = {"error": error}
    yield from turns.values()


def rename_request(line: Json, names: dict[str, str]) -> Json:
    """The line with a name for the id of a request of the engine."""
    request_id, response = line.get("request_id"), line.get("response")
    if request_id in names:
        return {**line, "request_id": names[request_id]}
    if isinstance(response, dict) and response.get("request_id") in names:
        return {**line, "response": {**response, "request_id": names[response["request_id"]]}}
    return line


def stable_part(line: Json) -> Json | None:
    """The fields of a line of the engine that are the same in every run; None for a line without any."""
    kind = line.get("type")
    match kind:
        case "assistant" if isinstance(line.get("message"), dict) and line["message"].get("model") != SYNTHETIC:
            return {"type": kind, "message": {"content": [stable_block(block) for block in blocks_of(line)]}}
        case "user" if any(block.get("type") == "tool_result" for block in blocks_of(line)):
            return {"type": kind, "message": {"content": [stable_block(block) for block in blocks_of(line)]}}
        case "result":
            return {"type": kind, **pick(line, "subtype", "is_error", "num_turns")}
        case "control_request":
            request = line.get("request")
            return {
                **pick(line, "type", "request_id"),
                "request": pick(request if isinstance(request, dict) else {}, "subtype", "tool_name", "tool_use_id"),
            }
        case "control_response":
            response = line.get("response")
            return {
                "type": kind,
                "response": pick(response if isinstance(response, dict) else {}, "subtype", "request_id"),
            }
    return None


def stable_block(block: Json) -> Json:
    match block.get("type"):
        case "tool_use":
            return pick(block, "type", "id", "name", "input")
        case "tool_result":
            return pick(block, "type", "tool_use_id")
        case "text":
            return pick(block, "type", "text")
    return pick(block, "type")


def blocks_of(line: Json) -> list[Json]:
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def pick(found: Json, *names: str) -> Json:
    return {name: found[name] for name in names if name in found}
