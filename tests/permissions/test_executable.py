"""The cases of the corpus that may run for real, through the executable: what it does is what `decide` says."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
PATIENCE_SECONDS = 60
LINES = (Path(__file__).parent / "decisions.jsonl").read_text().splitlines()
CASES: list[Json] = [case for case in map(json.loads, LINES) if case.get("run")]


def setting(case: Json) -> tuple[Any, ...]:
    return (case["mode"], case["allow"], case["deny"], case["ask"])


GROUPS = [list(cases) for _, cases in groupby(sorted(CASES, key=setting), key=setting)]


def placed(value: Any, cwd: Path) -> Any:
    """`/w` is where the engine runs."""
    return str(cwd) + value[2:] if isinstance(value, str) and (value + "/").startswith("/w/") else value


def script(cases: list[Json], cwd: Path) -> str:
    calls = []
    for number, case in enumerate(cases):
        input = ", ".join(f"{key} = {json.dumps(placed(value, cwd))}" for key, value in case["input"].items())
        calls.append(f'{{ name = "{case["tool"]}", id = "call_{number}", input = {{ {input} }} }}')
    return f"[[turn]]\ntools = [{', '.join(calls)}]\n[[turn]]\ntext = 'Done.'\n"


def command(case: Json, file: Path) -> list[str]:
    settings = {"permissions": {kind: case[kind] for kind in ("allow", "deny", "ask")}}
    return [
        *(sys.executable, "-m", "parley", "--print", "--verbose"),
        *("--output-format", "stream-json", "--input-format", "stream-json", "--permission-prompt-tool", "stdio"),
        *("--model", f"scripted:{file}", "--permission-mode", case["mode"], "--settings", json.dumps(settings)),
    ]


async def verdicts(cases: list[Json], folder: Path) -> dict[str, str]:
    cwd = folder / "w"
    (cwd / "src").mkdir(parents=True)
    file = folder / "script.toml"
    file.write_text(script(cases, cwd))
    pipe = asyncio.subprocess.PIPE
    environment = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin", "IS_SANDBOX": "1", "TMPDIR": str(folder)}
    engine = await asyncio.create_subprocess_exec(
        *command(cases[0], file), cwd=cwd, env=environment, stdin=pipe, stdout=pipe, limit=1 << 24
    )
    assert engine.stdin is not None
    assert engine.stdout is not None
    found: dict[str, str] = {}
    engine.stdin.write(json.dumps({"type": "user", "message": {"role": "user", "content": "go"}}).encode() + b"\n")
    async for raw in engine.stdout:
        line = json.loads(raw)
        if line["type"] == "control_request":
            found[line["request"]["tool_use_id"]] = "ask"
            answer = {"behavior": "deny", "message": "no"}
            response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
            engine.stdin.write(json.dumps({"type": "control_response", "response": response}).encode() + b"\n")
        elif line["type"] == "user":
            found |= {id: word for id, word in results(line) if id not in found}
        elif line["type"] == "result":
            engine.stdin.close()
    assert await engine.wait() == 0
    return found


def results(line: Json) -> Iterator[tuple[str, str]]:
    for meta in line.get("tool_result_meta", ()):
        yield meta["id"], {"accept": "allow", "reject": "deny"}[meta["permission_decision"]["decision"]]


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: " ".join(map(str, setting(cases[0]))))
def test_the_executable_decides_as_the_corpus_says(tmp_path: Path, cases: list[Json]) -> None:
    async def bounded() -> dict[str, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await verdicts(cases, tmp_path)

    found = asyncio.run(bounded())

    assert found == {f"call_{number}": case["expect"] for number, case in enumerate(cases)}


def test_forty_cases_and_more_run_for_real() -> None:
    assert len(CASES) >= 40
