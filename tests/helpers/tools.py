"""Call tools on real files: a folder, a context with the real workspace, and the calls.

harness = ToolHarness(tmp_path)
harness.put("a.txt", "alpha\\n")
harness.call(Read(), file_path="a.txt").content
harness.refusal(Read(), file_path="b.txt")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parley.errors import ToolError
from parley.tools.base import AgentState, Context, SessionServices, Tool, ToolOutput, read_input
from parley.workspace.base import Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.process.processes import Processes
from tests.helpers import remote_workspace


def make_hands(home: Path, folder: Path, new_id: Callable[[], str]) -> dict[str, Any]:
    """Files, commands and the folder for results: of this machine, or of a remote workspace (remote_workspace.py)."""
    if remote_workspace.is_remote():
        remote = remote_workspace.shared_server().connect(folder)
        results = Path(remote.welcome.own_folder, "tool-results")
        return {"files": remote.files, "processes": remote.processes, "results_folder": results}
    return {
        "files": LocalFiles(cwd=str(folder), checkpoints=CheckpointStore(home / "history"), new_id=new_id),
        "processes": Processes(),
        "results_folder": home / "results",
    }


class ToolHarness:
    def __init__(self, home: Path, *, strict_reads: bool = False) -> None:
        self.folder = home / "work"
        self.folder.mkdir()
        numbers = count(1)

        def new_id() -> str:
            return f"{next(numbers):024x}"

        self.context = Context(
            environment={"PATH": "/usr/bin:/bin"},
            **make_hands(home, self.folder, new_id),
            new_id=new_id,
            state=AgentState(cwd=str(self.folder)),
            session=SessionServices(must_read_first=lambda: strict_reads),
        )
        self.reach = Scope(anywhere=True)

    def change(self, **fields: Any) -> None:
        """Another context, with these fields."""
        self.context = replace(self.context, **fields)

    def offer(self, **services: Any) -> None:
        """Another session, with these services."""
        self.change(session=replace(self.context.session, **services))

    def put(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def call(self, tool: Tool, **input: Any) -> ToolOutput:
        """What the tool gives. Raises ToolError."""

        async def bounded() -> ToolOutput:
            async with asyncio.timeout(60):
                return await tool.run(read_input(tool, input), self.context, self.reach)

        return asyncio.run(bounded())

    def refusal(self, tool: Tool, **input: Any) -> str:
        """The words of the ToolError that the call must end with."""
        try:
            result = self.call(tool, **input)
        except ToolError as exc:
            return str(exc)
        raise AssertionError(f"{tool.name} was not refused: {result}")
