"""Short runs of approvals.py, which goes as far as you like; and some through the real executable."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from parley.engine.approval.gate import ApprovalGate
from parley.engine.approval.request import PendingCall, input_digest
from parley.engine.session import pump as serve
from parley.engine.turn import tool_executor
from parley.permissions.base import Allow
from parley.protocol.messages.requests import PermissionAnswer
from parley.tools.base import read_input
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.engine import approvals

Json = dict[str, Any]
CALLS = 10
RUNS = 20


def test_whatever_a_host_answers_what_runs_is_what_was_approved(tmp_path: Path) -> None:
    seen = approvals.run(tmp_path, schedules=300, seed=7)

    assert set(approvals.ANSWERS) <= seen.keys()
    assert seen["calls that ran"] > 300
    assert seen["calls that were denied"] > 300


# The laws can fail.


def test_the_laws_catch_an_engine_that_takes_any_answer_for_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(asker: ApprovalGate, answer: Any, asking: Any, pending: PendingCall) -> Allow:
        return Allow(input=pending.request.input, source="host")

    monkeypatch.setattr(ApprovalGate, "_check_reply", trusting)
    with pytest.raises(approvals.Broken, match="was allowed although the host said"):
        approvals.run(tmp_path, schedules=20, seed=7)


def test_the_laws_catch_an_engine_that_takes_the_answer_for_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Callable[..., Any] = ApprovalGate._check_reply

    def careless(asker: ApprovalGate, answer: Any, *more: Any) -> Any:
        named = isinstance(answer, dict) and set(answer) <= set(PermissionAnswer.__struct_fields__)
        rest = {key: value for key, value in answer.items() if key != "toolUseID"} if named else answer
        return taken(asker, rest, *more)

    monkeypatch.setattr(ApprovalGate, "_check_reply", careless)
    with pytest.raises(approvals.Broken, match="was allowed although the host said"):
        approvals.run(tmp_path, schedules=100, seed=7)


def test_the_laws_catch_a_tool_that_is_given_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(tool: Any, input: Json) -> Any:
        return read_input(tool, {**input, "numbers": [1000]} if "numbers" in input else input)

    monkeypatch.setattr(tool_executor, "read_input", other)
    with pytest.raises(approvals.Broken, match="ran without an approval"):
        approvals.run(tmp_path, schedules=20, seed=7)


def test_the_laws_catch_a_second_run_of_one_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once: Callable[..., Any] = approvals.Act.run

    async def twice(tool: Any, *call: Any) -> Any:
        await once(tool, *call)
        return await once(tool, *call)

    monkeypatch.setattr(approvals.Act, "run", twice)
    with pytest.raises(approvals.Broken, match="ran without an approval"):
        approvals.run(tmp_path, schedules=20, seed=7)


def test_the_laws_catch_an_engine_that_never_learns_of_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(pump: serve.Pump, session: Any) -> None:
        session.close_input()

    monkeypatch.setattr(serve.Pump, "close_input", deaf)
    with pytest.raises(approvals.Broken, match="did not end"):
        approvals.run(tmp_path, schedules=20, seed=7)


# The real executable.


def answers(dice: Random, asked: Json, nonce: str) -> list[tuple[Any, str | None]]:
    """What is sent for one question, and the content that it approves; the first counts."""
    call, content = asked["request"]["tool_use_id"], asked["request"]["input"]["content"]
    file = asked["request"]["input"]["file_path"]
    yes = {"behavior": "allow"}
    no: tuple[Any, str | None] = ({"behavior": "deny", "message": "no"}, None)
    kinds: list[list[tuple[Any, str | None]]] = [
        [(yes, content)],
        [({**yes, "toolUseID": call}, content)],
        [({**yes, "updatedInput": {"file_path": file, "content": nonce}}, nonce)],
        [({**yes, "updatedInput": {"file_path": file}}, None)],
        [({**yes, "toolUseID": "another"}, None)],
        [no, (yes, None)],
        [(yes, content), no, ({**yes, "updatedInput": {"file_path": file, "content": "late"}}, None)],
        [(dice.choice(approvals.NONSENSE), None)],
    ]
    return dice.choice(kinds)


async def schedule(folder: Path, dice: Random) -> dict[str, str]:
    """A session with ten writes and a host that answers each in its own way; what it approved."""
    expected: dict[str, str] = {}
    calls = [
        f"{{ name = 'Write', id = 'c{number}', input = {{ file_path = 'f{number}', content = 'w{number}' }} }}"
        for number in range(CALLS)
    ]
    (folder / "script.toml").write_text(f"[[turn]]\ntools = [{', '.join(calls)}]\n[[turn]]\ntext = 'Done.'\n")
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", "--print", "--verbose", "--output-format", "stream-json"),
        *("--input-format", "stream-json", "--permission-prompt-tool", "stdio", "--model", "scripted:script.toml"),
        cwd=folder,
        env={"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=1 << 24,
    )
    assert engine.stdin is not None
    assert engine.stdout is not None

    def send(line: Json) -> None:
        assert engine.stdin is not None
        engine.stdin.write(json.dumps(line).encode() + b"\n")

    send({"type": "user", "message": {"role": "user", "content": "go"}})
    results = 0
    async for raw in engine.stdout:
        line = json.loads(raw)
        results += line["type"] == "result"
        if line["type"] == "control_request":
            assert line["request"]["input_sha256"] == input_digest(line["request"]["input"])
            chosen = answers(dice, line, f"n{dice.randint(0, 999)}")
            if chosen[0][1] is not None:
                expected[line["request"]["input"]["file_path"]] = chosen[0][1]
            for id in ("forged", line["request_id"] + "0"):
                send(response(id, {"behavior": "allow"}))
            for answer, _ in chosen:
                send(response(line["request_id"], answer))
        elif line["type"] == "result":
            engine.stdin.close()
    assert (await engine.wait(), results) == (0, 1)
    return expected


def response(request_id: str, answer: Any) -> Json:
    return {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request_id, "response": answer},
    }


@pytest.mark.parametrize("seed", range(RUNS))
async def test_through_the_executable_what_runs_is_what_was_approved(tmp_path: Path, seed: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        expected = await schedule(tmp_path, Random(seed))

    assert {file.name: file.read_text() for file in tmp_path.glob("f*")} == expected
