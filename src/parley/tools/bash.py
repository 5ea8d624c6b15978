"""Bash and Monitor: run a command line in the working directory of the session.

Bash waits for the command, or starts it in the background. Monitor starts it in the background and reports each line
that it writes to the model. Where the sandbox is on, both run in it.

See also: `background.py` for the tasks that run in the background.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.settings.env_vars import is_truthy
from parley.tools.background import BackgroundTask
from parley.tools.base import HIDDEN, REQUIRED, CommandOrder, Context, Tool, ToolOutput
from parley.workspace.base import Scope
from parley.workspace.process.processes import CommandOutput, Finished
from parley.workspace.sandbox.base import SandboxedCommand
from parley.workspace.sandbox.commands import CommandPlace
from parley.workspace.search_path import with_absolute_path

DEFAULT_TIMEOUT_MS = 120_000
LONGEST_TIMEOUT_MS = 600_000
BACKGROUND_TIMEOUT_MS = 1_800_000
LONGEST_BACKGROUND_TIMEOUT_MS = 7_200_000
KEPT_BYTES = 30_000
MOST_KEPT_BYTES = 80_000
"""A message carries the output twice, and a byte may need six characters: more would not fit."""
PREVIEW_BYTES = 2_000
LONGEST_WORD_BYTES = 128 * 1024 - 1
"""The longest single argument that the kernel accepts."""
START = "Bash"
"""The key of the note with the start directory of the session."""

SHELL = ["/bin/bash", "--norc", "--noprofile", "-c"]
READ_BY_BASH = frozenset(
    {"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "BASH_COMPAT", "POSIXLY_CORRECT", "POSIX_PEDANTIC", "CDPATH", "PWD"}
    | {"GLOBIGNORE", "EXECIGNORE", "IFS", "PS4", "PROMPT_COMMAND", "BASH_XTRACEFD", "BASH_LOADABLES_PATH"}
)
"""Variables that change what bash sources, how it parses a line, where `cd` leads, or what a pattern matches."""
# At exit the shell writes its working directory to a descriptor of ours. `set -x` does not show it.
STAY = "CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR"
TRAP = "trap '{ set +x; builtin pwd -P >&199; } 2>/dev/null' EXIT; "
MONITOR_TIMEOUT_MS = 300_000
LONGEST_MONITOR_TIMEOUT_MS = 1_800_000
NO_SOCKETS = "`ws` is not supported: watch a command instead, for example a client that prints what it receives"


class BashInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="The command line to run")]
    timeout: Annotated[
        int | None, Meta(description=f"Milliseconds until it is killed, at most {LONGEST_TIMEOUT_MS}")
    ] = None
    description: Annotated[str | None, Meta(description="What the command does, in a few words")] = None
    run_in_background: Annotated[
        bool | None, Meta(description="Do not wait for it; you are notified when it finishes")
    ] = None
    dangerouslyDisableSandbox: Annotated[bool | None, HIDDEN] = None
    """Run the command outside of the sandbox, which needs approval. Not shown: the model learns of it when it fails."""


class Bash(Tool):
    name = "Bash"
    reads_only = False
    input = BashInput
    description = (
        "Runs a command line in bash. The working directory is kept from one call to the next; variables and "
        "functions are not. stdout and stderr come back together, after an `Exit code` line if the command "
        f"failed. stdin is empty, so a command must not wait for input. A command is killed after "
        f"{DEFAULT_TIMEOUT_MS // 1000} seconds unless `timeout` says otherwise. Long output is cut and saved to a "
        "file. What takes long, or never ends (a server), should run with `run_in_background`; do not use `&`."
    )

    async def run(self, call: BashInput, context: Context, reach: Scope) -> ToolOutput:
        folder, note = await working_directory(context)
        wants_outside = call.dangerouslyDisableSandbox is True
        place = await find_place(call.command, context, reach, wants_outside=wants_outside)
        if call.run_in_background and (context.session.tasks is None or context.session.tasks.are_allowed):
            asked_ms = BACKGROUND_TIMEOUT_MS if call.timeout is None else max(1, call.timeout)
            timeout_ms = min(asked_ms, LONGEST_BACKGROUND_TIMEOUT_MS)
            wanted = build_order(call, context, reach, folder, timeout_ms, place)
            return await start_in_background(wanted, context, note)
        timeout_ms = foreground_timeout_ms(call.timeout, context.environment)
        keep_bytes = min(env_number(context.environment, "BASH_MAX_OUTPUT_LENGTH") or KEPT_BYTES, MOST_KEPT_BYTES)
        watch = None if context.watch_output is None else partial(context.watch_output, reach.call)
        output = CommandOutput(
            keep_bytes, lambda: context.new_result_file("txt").path, watch, context.processes.outputs
        )
        wanted = build_order(call, context, reach, folder, timeout_ms, place)
        done = await run_and_wait(wanted, context, output)
        if not isinstance(done, Finished):
            return moved_to_background(done, note)
        ended_in = done.last_words.removesuffix("\n")
        if ended_in and not is_truthy(context.environment.get(STAY)):
            context.state.cwd = ended_in
        violations = [] if place is None else place.find_violations(call.command, decode_output(done.output))
        return format_result(done, timeout_ms, note, violations)


async def find_place(
    command: str, context: Context, reach: Scope, *, wants_outside: bool = False
) -> CommandPlace | None:
    """The sandbox in which a command runs; None for outside of one. Raises ToolError."""
    sandbox = context.find_sandbox(reach)
    if sandbox is None:
        return None

    folders = () if context.worktree is None else (context.worktree.path,)
    return await sandbox.place(
        SandboxedCommand(
            command=command,
            scope=reach,
            wants_outside=wants_outside,
            folders=folders,
            ask_host=context.session.ask_host,
            report_refusal=context.session.report_refusal,
        )
    )


def build_order(
    call: BashInput | MonitorInput,
    context: Context,
    reach: Scope,
    folder: str,
    timeout_ms: float,
    place: CommandPlace | None,
) -> CommandOrder:
    """Raises ToolError if the command is too long."""
    environment = shell_environment(context)
    return CommandOrder(
        argv=[*SHELL, script(call.command)],
        command=call.command,
        description=call.description or call.command,
        tool_use_id=reach.call,
        cwd=folder,
        environment=environment if place is None else place.adapt(environment),
        timeout_seconds=timeout_ms / 1000,
        sandbox=None if place is None else place.confinement,
    )


async def run_and_wait(wanted: CommandOrder, context: Context, output: CommandOutput) -> Finished | BackgroundTask:
    """Wait for the command. In a session the client can move it to the background."""
    if context.session.tasks is not None:
        return await context.session.tasks.run_command(wanted, output)
    return await context.processes.run(wanted, wanted.timeout_seconds, output)


def moved_to_background(task: BackgroundTask, note: str) -> ToolOutput:
    """The result of a command that was moved to the background."""
    text = (
        f"{note}The user sent this command to the background; it is running with ID: {task.id}. Output is being "
        f"written to: {task.output_file} You are notified when it finishes."
    )
    detail = {**detail_of(""), "backgroundTaskId": task.id, "backgroundedByUser": True}
    return ToolOutput(content=text, detail=detail, is_error=False)


async def start_in_background(wanted: CommandOrder, context: Context, note: str) -> ToolOutput:
    """Start the command in the background. Raises ToolError."""
    if context.session.tasks is None:
        raise ToolError(
            "Background tasks are not available in this session. Run the command without run_in_background."
        )
    task = await context.session.tasks.start_command(wanted)
    text = (
        f"{note}Command running in background with ID: {task.id}. Output is being written to: {task.output_file} "
        "You are notified when it finishes. TaskOutput shows its output, TaskStop ends it."
    )
    return ToolOutput(content=text, detail={**detail_of(""), "backgroundTaskId": task.id}, is_error=False)


def script(command: str) -> str:
    """The script for bash. Raises ToolError if it is too long."""
    quoted = command.replace("'", "'\\''")
    whole = f"{TRAP}eval '{quoted}'"
    size = len(whole.encode(errors="replace"))
    if size > LONGEST_WORD_BYTES:
        raise ToolError(
            f"The command is too long: {size} bytes, and the limit is {LONGEST_WORD_BYTES}. "
            "Write it to a file with Write and run the file, or do it in several steps."
        )
    return whole


async def working_directory(context: Context) -> tuple[str, str]:
    """Where a command runs, and a note if the previous directory is gone. Raises ToolError."""
    start = context.state.notes.setdefault(START, context.state.cwd)
    if await context.processes.is_folder(context.state.cwd):
        return context.state.cwd, ""
    if not await context.processes.is_folder(start):
        raise ToolError(f"The working directory {start} no longer exists. Create it with another tool.")
    gone, context.state.cwd = context.state.cwd, start
    return start, f"(The directory {decode_output(os.fsencode(gone))} no longer exists; this ran in {start}.)\n"


def foreground_timeout_ms(asked: int | None, environment: Mapping[str, str]) -> int:
    """The timeout: the environment sets the default and the maximum, the model chooses within them."""
    default = env_number(environment, "BASH_DEFAULT_TIMEOUT_MS") or DEFAULT_TIMEOUT_MS
    longest = max(env_number(environment, "BASH_MAX_TIMEOUT_MS") or LONGEST_TIMEOUT_MS, default)
    return default if asked is None else min(max(1, asked), longest)


def env_number(environment: Mapping[str, str], name: str) -> int | None:
    """A variable with a positive integer; None for other values."""
    value = environment.get(name, "")
    return int(value) or None if value.isascii() and value.isdigit() else None


def shell_environment(context: Context) -> dict[str, str]:
    """The environment without variables that change how bash reads the approved command."""
    environment = with_absolute_path({**context.environment, **context.observer.child_environment()})
    return {
        name: value
        for name, value in environment.items()
        if name not in READ_BY_BASH and not name.startswith("BASH_FUNC_")
    }


def format_result(done: Finished, timeout_ms: int, note: str = "", violations: Sequence[str] = ()) -> ToolOutput:
    """The result for the model and the client. Raises ToolError if the command failed."""
    refused = "\n".join(["\n<sandbox_violations>", *violations, "</sandbox_violations>"]) if violations else ""
    text = decode_output(done.output if done.total_bytes == len(done.output) else whole_characters(done.output)).rstrip(
        "\n"
    )
    told = shorten_output(done, text)
    if done.timed_out:
        lines = [f"Exit code {exit_code_text(done.exit_code)}", f"Command timed out after {timeout_ms / 1000:g}s", told]
        raise ToolError(note + "\n".join(line for line in lines if line) + refused)
    if done.exit_code != 0:
        code = f"Exit code {exit_code_text(done.exit_code)}"
        raise ToolError((f"{note}{code}\n{told}" if text else f"{note}{code}") + refused)
    detail = {**detail_of(text), "noOutputExpected": not text}
    if violations:
        detail["sandboxViolations"] = list(violations)
    if done.spilled_to is not None:
        detail |= {"persistedOutputPath": done.spilled_to, "persistedOutputSize": done.total_bytes}
    content = note + (told or "(Bash completed with no output)") + refused
    return ToolOutput(content=content, detail=detail, is_error=False)


def detail_of(stdout: str) -> Json:
    return {"stdout": stdout, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}


def decode_output(data: bytes) -> str:
    """Valid text: invalid bytes and NUL are replaced."""
    return data.decode(errors="replace").replace("\0", "\ufffd")


def whole_characters(data: bytes) -> bytes:
    """The data without an incomplete character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[:-back] if back < length else data
    return data


def exit_code_text(code: int) -> int:
    """The exit code as a shell shows it: 128 plus the signal for a killed command."""
    return 128 - code if code < 0 else code


def shorten_output(done: Finished, text: str) -> str:
    """The output or, if it is too long, its file and its start."""
    if done.total_bytes <= len(done.output):
        return text
    size = f"{done.total_bytes / 1024:.1f}KB" if done.total_bytes < 1 << 20 else f"{done.total_bytes / (1 << 20):.1f}MB"
    saved = f"Full output saved to: {done.spilled_to}"
    if done.problem:
        saved = f"Its beginning was saved to: {done.spilled_to}; {done.problem}" if done.spilled_to else done.problem
    return (
        f"<persisted-output>\nOutput too large ({size}). {saved}\n\n"
        f"Preview (first {PREVIEW_BYTES // 1000}KB):\n{text[:PREVIEW_BYTES]}\n...\n</persisted-output>"
    )


class MonitorInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="The command line to run"), REQUIRED] = ""
    description: Annotated[str, Meta(description="What it watches, in a few words")]
    timeout_ms: Annotated[int, Meta(description=f"At most {LONGEST_MONITOR_TIMEOUT_MS}")] = MONITOR_TIMEOUT_MS
    ws: Annotated[Any, HIDDEN] = None

    def __post_init__(self) -> None:
        if self.ws is not None:
            raise ValueError(NO_SOCKETS)
        if not self.command.strip():
            raise ValueError("`command` is missing")


class Monitor(Tool):
    name = "Monitor"
    reads_only = False
    input = MonitorInput
    description = (
        "Runs a command in the background and notifies you of each line it writes, and of its end. TaskStop ends it."
    )

    async def run(self, call: MonitorInput, context: Context, reach: Scope) -> ToolOutput:
        tasks = context.session.tasks
        if tasks is None or not tasks.are_allowed:
            raise ToolError("Background tasks are not available in this session.")
        folder, note = await working_directory(context)
        timeout_ms = min(max(1, call.timeout_ms), LONGEST_MONITOR_TIMEOUT_MS)
        place = await find_place(call.command, context, reach)
        task = await tasks.start_monitor(build_order(call, context, reach, folder, timeout_ms, place))
        limit = f"for at most {timeout_ms / 1000:g} s"
        text = f"{note}Monitoring with ID: {task.id}, {limit}. Its output is in: {task.output_file}"
        return ToolOutput(content=text, detail={"taskId": task.id, "timeoutMs": timeout_ms}, is_error=False)
