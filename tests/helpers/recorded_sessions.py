"""What the original CLI was seen to do with transcripts, played from lines that it wrote.

`recorded/*.jsonl` are single turns of the original (2.1.325) with our scripted model: a first one, one of a resumed
session, one with two calls at once, one that was killed in a call, a compaction. Its own texts are taken out.
`StandIn` reads and writes transcripts as it does, where the executable is not at hand:

- It continues on the newest line that descends from the one that the last `last-prompt` names, or on the last line.
- Lines that a boundary preserves follow its summary, and what was said after the summary follows them.
- A fork is a copy of that chain under another session id: lines without a uuid, ours among them, are left out.
- A call without a result gets one when the session is resumed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.helpers import paths

RECORDED = paths.DATA / "sessions"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
IDS = re.compile(r"\b(msg|toolu|req)_[0-9a-zA-Z]+")
MARKS = re.compile(r"\b(prompt|answer|tool|summary|begun)-\d+")
Line = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What came of a turn."""

    session_id: str
    requests: list[str]
    """The messages of each request, as JSON."""


@dataclass(frozen=True)
class Chain:
    """The lines that a request is made of, and the last of them."""

    lines: list[Line]
    leaf: str | None

    def messages(self) -> list[Any]:
        return [line["message"] for line in self.lines if line["type"] in ("user", "assistant")]

    def open_calls(self) -> list[str]:
        blocks = [block for message in self.messages() for block in blocks_of(message)]
        answered = {block.get("tool_use_id") for block in blocks}
        return [block["id"] for block in blocks if block.get("type") == "tool_use" and block["id"] not in answered]


def blocks_of(message: Any) -> list[Any]:
    return message["content"] if isinstance(message["content"], list) else []


def read(path: Path, at: str | None = None) -> Chain:
    """The conversation as the original takes it up, after a line if one is named."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    nodes = {line["uuid"]: line for line in lines if "parentUuid" in line and not line.get("isSidechain")}
    parents = {uuid: line["parentUuid"] for uuid, line in nodes.items()}
    for line in nodes.values():
        segment = (line.get("compactMetadata") or {}).get("preservedSegment")
        if segment and {segment["headUuid"], segment["tailUuid"], segment["anchorUuid"]} <= nodes.keys():
            for uuid in [uuid for uuid, parent in parents.items() if parent == segment["anchorUuid"]]:
                parents[uuid] = segment["tailUuid"]
            parents[segment["headUuid"]] = segment["anchorUuid"]

    def above(uuid: str | None) -> list[str]:
        found: list[str] = []
        while uuid in nodes and uuid not in found:
            found.append(str(uuid))
            uuid = parents[str(uuid)]
        return found

    named = [line["leafUuid"] for line in lines if line["type"] == "last-prompt" and line["leafUuid"] in nodes]
    below = [uuid for uuid in nodes if not named or named[-1] in above(uuid)]
    leaf = at or (below[-1] if below else None)
    kept = set(above(leaf))
    answers = {nodes[uuid]["message"].get("id") for uuid in kept if nodes[uuid]["type"] == "assistant"}
    blocks = {uuid for uuid, line in nodes.items() if line["type"] == "assistant" and line["message"]["id"] in answers}
    results = {
        uuid
        for uuid, line in nodes.items()
        if line["type"] == "user" and parents[uuid] in blocks and is_result(line["message"])
    }
    wanted = kept if at else kept | blocks | results
    return Chain([line for uuid, line in nodes.items() if uuid in wanted], leaf)


def is_result(message: Any) -> bool:
    return any(block.get("type") == "tool_result" for block in blocks_of(message))


class StandIn:
    """Plays turns in the place of the original."""

    def play(self, world: Any, turn: Any, session_id: str | None) -> Told:
        chain = read(world.transcript(session_id), turn.at) if session_id else Chain([], None)
        new_id = session_id if session_id and not turn.fork else str(uuid4())
        path = world.transcript(new_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        if turn.fork and session_id:
            surroundings = {"sessionId": new_id, "gitBranch": "HEAD"}
            write(path, [{**line, **surroundings, **prompt_id(line)} for line in chain.lines])
        leaf = chain.leaf
        for call in chain.open_calls():
            line = interrupted(call, leaf, new_id, world)
            write(path, [line])
            leaf = line["uuid"]
        lines = list(recorded(template(turn, session_id), turn.number, new_id, world, leaf))
        if turn.compact:
            lines = [preserving(line, chain) for line in lines]
        write(path, lines)
        said = [line["message"] for line in lines if line["type"] == "user" and not turn.compact]
        messages = chain.messages()[:-1] if turn.compact else chain.messages()
        return Told(new_id, [json.dumps([*messages, *said])])


def template(turn: Any, session_id: str | None) -> str:
    for name in ("compact", "kill", "tools"):
        if getattr(turn, name):
            return name
    return "resumed" if session_id else "plain"


def recorded(name: str, number: int, session_id: str, world: Any, leaf: str | None) -> list[Line]:
    """The lines of a recorded turn with ids of their own, after a line."""
    lines = [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]
    text = json.dumps(lines)
    old = {line["uuid"] for line in lines if "uuid" in line}
    for uuid in old:
        text = text.replace(uuid, str(uuid4()))
    suffix = uuid4().hex[:12]
    text = IDS.sub(lambda found: f"{found[0][:-12]}{suffix}", text)
    text = MARKS.sub(lambda found: f"{found[1]}-{number}", text)
    renamed: list[Line] = json.loads(text)
    known = {line["uuid"] for line in renamed if "uuid" in line}
    for line in renamed:
        line["sessionId"] = session_id
        if "cwd" in line:
            line["cwd"] = str(world.cwd)
        if line.get("type") != "system" and "parentUuid" in line and line["parentUuid"] not in known:
            line["parentUuid"] = leaf
        if line.get("logicalParentUuid"):
            line["logicalParentUuid"] = leaf
    return renamed


def preserving(line: Line, chain: Chain) -> Line:
    """A boundary that preserves the last message of this conversation."""
    if line["type"] != "system":
        return line
    last = [each["uuid"] for each in chain.lines if each["type"] in ("user", "assistant")][-1]
    metadata = json.loads(UUID.sub(lambda found: found[0], json.dumps(line["compactMetadata"])))
    metadata["preservedSegment"] |= {"headUuid": last, "tailUuid": last}
    metadata["preservedMessages"] |= {"uuids": [last], "allUuids": [last]}
    return {**line, "compactMetadata": metadata}


def interrupted(call: str, leaf: str | None, session_id: str, world: Any) -> Line:
    result = {"type": "tool_result", "tool_use_id": call, "content": "[interrupted]", "is_error": True}
    return {
        "parentUuid": leaf,
        "isSidechain": False,
        "type": "user",
        "message": {"role": "user", "content": [result]},
        "uuid": str(uuid4()),
        "timestamp": "2026-01-02T00:00:00.000Z",
        "cwd": str(world.cwd),
        "sessionId": session_id,
        "version": "2.1.325",
    }


def prompt_id(line: Line) -> Line:
    return {"promptId": str(uuid4())} if line["type"] == "user" else {}


def write(path: Path, lines: list[Line]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
