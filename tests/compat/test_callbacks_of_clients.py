"""Callbacks of the official SDKs: however it is used, none is lost, 32 at a time, answered in any order."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.models.script import ScriptedTurn
from tests.compat.harness import Stage, installed
from tests.compat.install import CURRENT_PYTHON, OLD_PYTHON, TYPESCRIPT, Client

CALLS = 32
CELLS = [(form, kind) for form in ("string", "list", "generator") for kind in ("hook", "can_use_tool")]
RUNS = [
    pytest.param(CURRENT_PYTHON, "query", CELLS, id=f"{CURRENT_PYTHON.version} query"),
    pytest.param(CURRENT_PYTHON, "client", CELLS, id=f"{CURRENT_PYTHON.version} client"),
    # This release has no permission callback for a plain text, and hangs up too early on others but hooks.
    pytest.param(OLD_PYTHON, "query", [("list", "hook"), ("generator", "hook")], id=f"{OLD_PYTHON.version} query"),
    pytest.param(OLD_PYTHON, "client", CELLS, id=f"{OLD_PYTHON.version} client"),
    pytest.param(TYPESCRIPT, "query", CELLS, id=f"TypeScript {TYPESCRIPT.version} query"),
    pytest.param(TYPESCRIPT, "websocket", CELLS, id=f"TypeScript {TYPESCRIPT.version} websocket"),
    pytest.param(TYPESCRIPT, "sse", CELLS, id=f"TypeScript {TYPESCRIPT.version} event stream"),
    pytest.param(TYPESCRIPT, "direct", CELLS, id=f"TypeScript {TYPESCRIPT.version} direct"),
]
NETWORK = ("websocket", "sse", "direct")


@pytest.mark.parametrize(("client", "door", "cells"), RUNS)
def test_no_callback_is_lost(tmp_path: Path, client: Client, door: str, cells: list[tuple[str, str]]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.txt").write_text("text")
    ids = [f"toolu_{number}" for number in range(CALLS)]
    files = [str(elsewhere / f"{'./' * number}a.txt") for number in range(CALLS)]
    blocks = [
        {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": file}}
        for id, file in zip(ids, files, strict=True)
    ]

    connection = door if door in NETWORK else "pipe"
    report = Stage(installed(client), tmp_path, connection=connection).run(
        "asking",
        [ScriptedTurn(blocks=blocks), ScriptedTurn(text="Done.")] * len(cells),
        env={"CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY": str(CALLS)},
        door=door,
        cells=cells,
        calls=CALLS,
    )

    asked, answered = in_cells(report.of("asked")), in_cells(report.of("answered"))
    assert [sorted(names) for names in asked] == [sorted(ids if kind == "hook" else files) for _, kind in cells]
    assert answered == [names[::-1] for names in asked]
    assert [message["result"] for message in report.messages] == ["Done."] * len(cells)
    for request in report.requests[1::2]:
        results = [block for block in request["messages"][-1]["content"] if not block.get("is_error")]
        assert sorted(block["tool_use_id"] for block in results) == sorted(ids)
    assert report.warnings() == []


def in_cells(names: list[str]) -> list[list[str]]:
    """What was told in each cell: as often as there are calls."""
    return [names[start : start + CALLS] for start in range(0, len(names), CALLS)]
