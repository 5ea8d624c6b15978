"""Start command hooks and stdio MCP servers, in the sandbox if the settings say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from parley.tools.base import Workspace
from parley.workspace.base import Scope
from parley.workspace.process.processes import RunningCommand

if TYPE_CHECKING:
    from parley.workspace.sandbox.launcher import SandboxLauncher


class ConfinedStarter:
    """Starts programs of one kind, those of the project or those of others."""

    def __init__(self, workspace: Workspace, kind: Literal["hook", "server"], *, by_project: bool) -> None:
        self._workspace = workspace
        self._kind: Literal["hook", "server"] = kind
        self._by_project = by_project

    async def find_program(self, name: str, search_path: str) -> str | None:
        return await self._workspace.processes.find_program(name, search_path)

    async def start(
        self,
        argv: list[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        take: Callable[[bytes], None],
        take_errors: Callable[[bytes], None] | None = None,
    ) -> RunningCommand:
        """Raises ToolError if it cannot be started, or must be confined and cannot be."""
        sandbox = self._workspace.find_sandbox(Scope())
        place = None if sandbox is None else await sandbox.place_program(self._kind, by_project=self._by_project)
        confinement: SandboxLauncher | None = None
        if place is not None:
            environment, confinement = place.adapt(environment), place.confinement
        return await self._workspace.processes.start(
            argv, cwd=cwd, environment=environment, take=take, take_errors=take_errors, sandbox=confinement
        )
