"""The decision table through every door: one-shot, streaming and resumed sessions decide alike, and as it says.

Tools stand in for the real ones here that note that they ran and touch nothing; all else is a real session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gen_permissions import CWD, RULES, SAMPLES, Sample, find_verdict

from parley.cli.output import ResultPrinter
from parley.cli.run import print_one
from parley.compose.tools import make_tool
from parley.engine.session.config import SessionConfig
from parley.permissions.decision import MODES
from parley.permissions.rule import Behavior
from parley.protocol.base import Struct
from parley.tools.base import Context, Tool, ToolOutput, ToolRegistry
from parley.tools.catalog import BUILT_IN
from parley.workspace.base import Scope
from tests.helpers.session import Json, SessionHarness

SESSION = "00000000-0000-4000-8000-00000000000a"


class Anything(Struct, frozen=True):
    """Whatever the input is."""


def double(name: str, ran: list[str]) -> Tool:
    """A tool that goes by a name and only notes that it ran."""
    real = make_tool(name) if name in BUILT_IN else None

    class Double(Tool):
        description = ""
        input = Anything

        async def run(self, call: Anything, context: Context, reach: Scope) -> ToolOutput:
            ran.append(name)
            return ToolOutput(content="ran")

    facts = {
        "name": name,
        "reads_only": real is not None and real.reads_only,
        "always_asks": real is not None and real.always_asks,
    }
    made: Tool = type(name, (Double,), facts)()
    return made


class Doubles(SessionHarness):
    """A room in which nothing is touched."""

    def __init__(self, folder: Path, sample: Sample, behavior: Behavior | None, **options: Any) -> None:
        texts = {"allow": sample.allow, "deny": sample.deny, "ask": sample.ask or sample.deny}
        rules = {behavior: [texts[behavior]]} if behavior else {}
        super().__init__(folder, script(sample, folder), settings=json.dumps({"permissions": rules}), **options)
        self.ran: list[str] = []

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        return msgspec.structs.replace(setup, tools=ToolRegistry(names(), lambda name: double(name, self.ran)))


def names() -> list[str]:
    return sorted({sample.tool for sample in SAMPLES})


def script(sample: Sample, folder: Path) -> str:
    placed = {key: value.replace(CWD, str(folder)) for key, value in sample.input.items()}
    input = ", ".join(f"{key} = {json.dumps(value)}" for key, value in placed.items())
    call = f"{{ name = {json.dumps(sample.tool)}, id = 'c1', input = {{ {input} }} }}"
    return f"[[turn]]\ntools = [{call}]\n[[turn]]\ntext = 'Done.'\n"


def decided(harness: Doubles, setup: SessionConfig) -> str:
    """What the record says, once it is clear that nothing else ran."""
    [record] = [entry.message for entry in setup.storage.log.entries() if entry.kind == "permission"]
    assert (len(harness.ran) == 1) == (record["decision"] == "allow")
    return "ask" if record["asked"] else str(record["decision"])


# The doors.


async def one_shot(folder: Path, sample: Sample, behavior: Behavior | None, mode: str) -> str:
    """`parley -p`: no one can be asked, and a question is a denial."""
    harness = Doubles(folder, sample, behavior, permission_mode=mode, print=True, no_session_persistence=True)
    setup = harness.composed()
    await print_one(setup, "go", ResultPrinter(as_json=False, everything=False))
    return decided(harness, setup)


async def streaming(folder: Path, sample: Sample, behavior: Behavior | None, mode: str, **options: Any) -> str:
    """A host on a stream, which denies what it is asked about."""
    options = {"no_session_persistence": True} | options
    harness = Doubles(folder, sample, behavior, permission_mode=mode, permission_prompt_tool="stdio", **options)
    async with harness:
        harness.prompt("go")
        line = await harness.receive_until(lambda line: line["type"] in ("control_request", "result"))
        if line["type"] == "control_request":
            harness.send(denial(line["request_id"]))
            await harness.receive("result")
        asked = any(harness.messages("control_request"))
        found = decided(harness, harness.session.config)
    assert asked == (found == "ask")
    return found


async def resumed(folder: Path, sample: Sample, behavior: Behavior | None, mode: str) -> str:
    """A session that began without any rule, in the default mode."""
    harness = SessionHarness(folder, "[[turn]]\ntext = 'Hello.'\n", session_id=SESSION)
    async with harness:
        harness.prompt("hello")
        await harness.receive("result")
    found = await streaming(folder, sample, behavior, mode, resume=SESSION, no_session_persistence=False)
    await asyncio.to_thread(forget, folder)
    return found


def forget(folder: Path) -> None:
    for log in folder.glob("home/.claude/projects/*/*.jsonl"):
        log.unlink()


def denial(request_id: str) -> Json:
    response = {"subtype": "success", "request_id": request_id, "response": {"behavior": "deny", "message": "no"}}
    return {"type": "control_response", "response": response}


Door = Callable[[Path, Sample, Behavior | None, str], Coroutine[Any, Any, str]]
DOORS: list[Door] = [one_shot, streaming, resumed]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("behavior", RULES, ids=lambda behavior: f"rule {behavior}")
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.kind)
async def test_every_door_decides_as_the_table_says(
    tmp_path: Path, sample: Sample, behavior: Behavior | None, door: Door
) -> None:
    through = partial(door, tmp_path, sample, behavior)
    found = {mode: await through(mode) for mode in MODES}

    assert found == {mode: find_verdict(sample, behavior, mode) for mode in MODES}
