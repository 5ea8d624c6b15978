"""Monitor: watch what a command writes. Each line of its stdout is reported to the model while it runs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Struct
from parley.tools.base import CommandOrder, Context, ToolOutput
from parley.tools.shell.bash import SHELL, find_place, script, shell_environment, working_directory
from parley.workspace.base import Scope

DEFAULT_TIMEOUT_MS = 300_000
LONGEST_TIMEOUT_MS = 1_800_000
NO_SOCKETS = "`ws` is not supported: watch a command instead, for example a client that prints what it receives"


class MonitorShown(Struct, frozen=True, kw_only=True):
    command: str
    description: str
    timeout_ms: Annotated[int, Meta(description=f"At most {LONGEST_TIMEOUT_MS}")] = DEFAULT_TIMEOUT_MS


class MonitorInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    description: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    command: str = ""
    ws: Any = None

    def __post_init__(self) -> None:
        if self.ws is not None:
            raise ValueError(NO_SOCKETS)
        if not self.command.strip():
            raise ValueError("`command` is missing")


class Monitor:
    name: ClassVar[str] = "Monitor"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = MonitorInput
    shown: ClassVar[type[Struct]] = MonitorShown
    description: ClassVar[str] = (
        "Runs a command in the background and notifies you of each line it writes, and of its end. TaskStop ends it."
    )

    async def run(self, call: MonitorInput, context: Context, reach: Scope) -> ToolOutput:
        tasks = context.session.tasks
        if tasks is None or not tasks.are_allowed:
            raise ToolError("Background tasks are not available in this session.")
        folder, note = await working_directory(context)
        timeout_ms = min(max(1, call.timeout_ms), LONGEST_TIMEOUT_MS)
        place = await find_place(call.command, context, reach)
        environment = shell_environment(context)
        order = CommandOrder(
            argv=[*SHELL, script(call.command)],
            command=call.command,
            description=call.description,
            tool_use_id=reach.call,
            cwd=folder,
            environment=environment if place is None else place.adapt(environment),
            timeout_seconds=timeout_ms / 1000,
            sandbox=None if place is None else place.confinement,
        )
        task = await tasks.start_monitor(order)
        limit = f"for at most {timeout_ms / 1000:g} s"
        text = f"{note}Monitoring with ID: {task.id}, {limit}. Its output is in: {task.output_file}"
        return ToolOutput(content=text, detail={"taskId": task.id, "timeoutMs": timeout_ms}, is_error=False)
