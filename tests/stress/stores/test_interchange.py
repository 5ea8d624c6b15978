"""Sessions that Claude Code and Parley continue in turns, and what other programs read from our transcripts.

`PARLEY_ORIGINAL` names the executable of Claude Code; without it, recorded lines are used (recorded_sessions.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.models.script import Script, ScriptedCall, ScriptedTurn
from parley.stores.base import Entry, later_time
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.testing.model_server import running
from tests.helpers.recorded_sessions import RECORDED
from tests.stress.stores import interchange

OLDER = "44444444-4444-4444-8444-444444444444"
FORK = "55555555-5555-4555-8555-555555555555"
SAID = ["prompt-1", "answer-1a", "Bash", "tool-1a", "answer-1"]
CONTEXT = EntryContext(cwd="/project", version="2.1.0")


@pytest.mark.parametrize("kind", ["plain", "tools", "fork", "compact", "kill", "at"])
def test_each_engine_sees_all_that_was_said_to_the_other(tmp_path: Path, kind: str) -> None:
    table = interchange.run(tmp_path, os.environ.get("PARLEY_ORIGINAL"), [kind], ["OPO", "POP"])

    assert table == {kind: {"sequences": 2, "whole": 2, "lost": []}}


def transcript(folder: Path, session_id: str) -> Path:
    path = folder / "projects" / "-project" / f"{session_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def words(entries: list[Entry]) -> list[str]:
    """What was said, in a word each."""
    contents = [entry.message["message"]["content"] for entry in entries if entry.kind in ("user", "assistant")]
    blocks = [block for content in contents for block in (content if isinstance(content, list) else [content])]
    return [
        block if isinstance(block, str) else str(block.get("text") or block.get("name") or block.get("content"))
        for block in blocks
    ]


def test_a_session_of_an_older_version_is_read_and_continued(tmp_path: Path) -> None:
    warnings: list[str] = []
    path = transcript(tmp_path, OLDER)
    path.write_bytes((RECORDED / "older-parley.jsonl").read_bytes())
    store = ClaudeStore(tmp_path, CONTEXT, warnings.append)
    entries = list(store.read(OLDER))
    log = store.open(OLDER)
    log.append(Entry(seq=8, kind="note", at="2026-01-01T00:00:09.000Z", message={"text": "more"}))
    log.close()

    assert words(entries) == SAID
    assert entries[-1].message["total_cost_usd"] == 0.5
    assert [entry.seq for entry in store.read(OLDER)] == list(range(9))
    assert warnings == []


def forked(lines: list[Any], session_id: str) -> bytes:
    """As the original forks: lines without a uuid are dropped, and what says where a line stands is changed."""
    kept = [{**line, "sessionId": session_id, "gitBranch": "HEAD"} for line in lines if "uuid" in line]
    return b"".join(json.dumps(line).encode() + b"\n" for line in kept)


def test_a_fork_of_an_older_session_by_the_original_is_whole(tmp_path: Path) -> None:
    warnings: list[str] = []
    lines = [json.loads(line) for line in (RECORDED / "older-parley.jsonl").read_text().splitlines()]
    transcript(tmp_path, FORK).write_bytes(forked(lines, FORK))

    assert words(list(ClaudeStore(tmp_path, CONTEXT, warnings.append).read(FORK))) == SAID
    assert warnings == []


def test_a_copied_line_that_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    warnings: list[str] = []
    store = ClaudeStore(tmp_path, CONTEXT, warnings.append)
    transcript(tmp_path, OLDER).write_bytes((RECORDED / "older-parley.jsonl").read_bytes())
    log = store.create("66666666-6666-4666-8666-666666666666")
    for entry in store.read(OLDER):
        log.append(entry)
    log.close()
    path = transcript(tmp_path, "66666666-6666-4666-8666-666666666666")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    transcript(tmp_path, FORK).write_bytes(forked(lines, FORK).replace(b'"answer-1a"', b'"answer-2a"', 1))

    assert words(list(store.read(FORK))) == [word for word in SAID if word != "answer-1a"]
    assert warnings == [f"line 2 of {transcript(tmp_path, FORK)} is incomplete or damaged; skipped"]


def test_transcripts_have_final_figures_once_and_times_that_rise(tmp_path: Path) -> None:
    usage = {"input_tokens": 100, "output_tokens": 50}
    calls = [ScriptedCall(name="Bash", input={"command": f"echo {word}"}) for word in ("one", "two")]
    turns = [
        ScriptedTurn(thinking="Hm.", text="I look.", tools=calls, usage=usage),
        ScriptedTurn(text="Done.", usage=usage),
    ]
    world = interchange.World(tmp_path / "world")
    with running(Script(turn=turns)) as server:
        environment = interchange.Executable("")._environment(world, server.url)
        command = [str(interchange.PARLEY), "-p", "Hi", "--output-format", "json", "--model", "claude-sonnet-4-5"]
        command += ["--permission-mode", "bypassPermissions"]
        done = subprocess.run(
            command, cwd=world.cwd, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
    result = json.loads(done.stdout)
    lines = [json.loads(line) for line in world.transcript(result["session_id"]).read_text().splitlines()]

    answers = [line["message"] for line in lines if line["type"] == "assistant"]
    assert [answer["stop_reason"] for answer in answers] == ["tool_use"] * 4 + ["end_turn"]
    assert {answer["usage"]["output_tokens"] for answer in answers} == {50}
    by_id = {answer["id"]: answer["usage"] for answer in answers}
    assert sum(each["output_tokens"] for each in by_id.values()) == result["usage"]["output_tokens"] == 100
    assert [line for line in lines if line["type"] == "parley" and "usage" in (line.get("message") or {})] == []
    times = [line["timestamp"] for line in lines if "timestamp" in line]
    assert times == sorted(set(times))


def test_a_block_that_was_kept_before_a_crash_is_a_line_of_the_conversation_afterwards(tmp_path: Path) -> None:
    store = ClaudeStore(tmp_path, CONTEXT)
    transcript(tmp_path, OLDER).write_bytes((RECORDED / "older-parley.jsonl").read_bytes())
    *_, user, last = [entry for entry in store.read(OLDER) if entry.kind in ("user", "assistant")]
    log = store.create(FORK)
    log.append(user)
    log.append(last)
    path = transcript(tmp_path, FORK)
    kept = path.read_bytes()  # what a kill leaves

    assert [json.loads(line)["type"] for line in kept.splitlines()] == ["user", "parley"]
    log.close()
    path.write_bytes(kept)
    assert words(list(store.read(FORK))) == ["tool-1a", "answer-1"]
    log = store.open(FORK)
    log.append(Entry(seq=9, kind="note", at="2026-01-01T00:00:09.000Z", message={}))
    log.close()
    assert [json.loads(line)["type"] for line in path.read_text().splitlines()] == [
        "user",
        "parley",
        "assistant",
        "parley",
    ]
    assert words(list(store.read(FORK))) == ["tool-1a", "answer-1"]


@pytest.mark.parametrize(
    ("at", "last", "found"),
    [
        ("2026-01-01T00:00:01.000Z", "", "2026-01-01T00:00:01.000Z"),
        ("2026-01-01T00:00:01.000Z", "2026-01-01T00:00:00.999Z", "2026-01-01T00:00:01.000Z"),
        ("2026-01-01T00:00:01.000Z", "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:01.001Z"),
        ("2026-01-01T00:00:01.000Z", "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00.000Z"),
        ("2026-01-01T00:00:01.000Z", "no time", "2026-01-01T00:00:01.000Z"),
    ],
)
def test_a_time_is_later_than_the_one_before(at: str, last: str, found: str) -> None:
    assert later_time(at, last) == found
