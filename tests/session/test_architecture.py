"""docs/architecture.md walks one prompt through the code. The walk is what really happens."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from trace_prompt import Step, Tracer

from tests.helpers import paths
from tests.helpers.session import SessionHarness

PAGE = (paths.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK: list[Step] = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", PAGE, re.MULTILINE)
SCRIPT = """
[[turn]]
tools = [{name = "Bash", input = {command = "touch made", description = "Make a file"}}]
[[turn]]
text = "Done."
"""


def defined(path: Path) -> set[str]:
    """The qualified names of the functions and methods of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    names = {node.name for node in tree.body if isinstance(node, functions)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, functions)}
    return names


def test_every_step_has_its_number() -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]

    assert numbers == list(range(1, len(WALK) + 1))


def test_every_function_of_the_walk_exists() -> None:
    missing = [(file, name) for file, name in WALK if name not in defined(paths.SOURCE / "parley" / file)]

    assert missing == []


async def test_a_prompt_takes_the_steps_of_the_walk_in_their_order(tmp_path: Path) -> None:
    tracer = Tracer()
    async with SessionHarness(tmp_path, SCRIPT, permission_prompt_tool="stdio") as harness:
        await harness.request("initialize")
        tracer.start()
        try:
            harness.prompt("Make a file")
            request = await harness.receive("control_request")
            answer = {"behavior": "allow", "updatedInput": request["request"]["input"]}
            response = {"subtype": "success", "request_id": request["request_id"], "response": answer}
            harness.send({"type": "control_response", "response": response})
            result = await harness.receive("result")
        finally:
            tracer.stop()

    left = iter(tracer.steps)
    assert [step for step in WALK if step not in left] == []  # `in` consumes the steps up to the one that it finds
    assert (tmp_path / "made").exists()
    assert result["is_error"] is False
    assert len(tracer.question) <= 10


def test_the_page_can_be_read_at_a_sitting() -> None:
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)

    assert len(prose.split()) <= 1100
