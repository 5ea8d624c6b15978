"""Command hooks from settings: the input is JSON on stdin, the output is the exit code and stdout.

    exit 0     stdout is the output if it is a JSON object, otherwise text: context for events that accept it
    exit 2     blocks; stderr is the reason
    other      failure; `onFailure` decides (default for PreToolUse: the call is denied)

A command whose first line is `{"async": true}`, or whose entry has `async`, continues in the background. Commands run
in the project directory, not in the session's current one, so relative paths always mean the same script. They run
under the process supervisor, without keys in their environment.

`engine/hooks/runner.py` stops a hook at its timeout; here is only that of background commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from parley.errors import ToolError
from parley.hooks.base import Hook, HookInvocation, HookRun, Progress, is_text, is_texts
from parley.hooks.event_spec import HookEventSpec
from parley.hooks.output import (
    MAX_OUTPUT_BYTES,
    MAX_REASON_CHARS,
    HookFailed,
    HookOutput,
    decode_output,
    parse_answer,
    parse_reply,
)
from parley.protocol.base import Json
from parley.workspace.process.processes import CommandEnd, PreparedCommand
from parley.workspace.process.processes import RunningCommand as Process

BASH = "bash"
SHELLS = {
    BASH: ["/bin/bash", "--norc", "--noprofile", "-c"],
    "powershell": ["/bin/sh", "-c", 'exec pwsh -NoProfile -NonInteractive -Command "$0"'],
}
PROGRAM = ["/bin/sh", "-c", 'exec "$0" "$@"']
"""Runs a program with arguments, found in PATH."""
PROGRESS_SECONDS = 1.0
SHELL_STARTUP_VARIABLES = ("BASH_ENV", "ENV")
"""Bash would source these files before the command."""
BLOCK_EXIT_CODE = 2


class OutputBuffer:
    """The output of one stream of a command, up to a limit."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.total_bytes = 0
        self.has_line: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first line is complete."""

    def append(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._data += data[: max(0, MAX_OUTPUT_BYTES - len(self._data))]
        if b"\n" in data and not self.has_line.done():
            self.has_line.set_result(None)

    @property
    def is_cut(self) -> bool:
        return self.total_bytes > len(self._data)

    @property
    def data(self) -> bytes:
        return bytes(self._data)

    @property
    def text(self) -> str:
        return decode_output(self._data)

    def first_line(self) -> bytes | None:
        line, end, _ = self._data.partition(b"\n")
        return bytes(line) if end else None


class CommandHook(Hook, frozen=True, kw_only=True, eq=False):
    """A command."""

    kind: ClassVar[str] = "command"
    keys: ClassVar[frozenset[str]] = frozenset({"command", "args", "async", "asyncRewake", "shell"})
    command: str
    args: tuple[str, ...] | None = None
    in_background: bool = False
    wakes: bool = False
    """`asyncRewake`: it runs in the background, and exit code 2 wakes the model."""
    shell: str = BASH

    @classmethod
    def read_fields(cls, handler: Json) -> Json | str:
        line, words, shell = handler.get("command"), handler.get("args"), handler.get("shell", "bash")
        if not is_text(line) or not (words is None or is_texts(words)):
            return "command must be a string and args a list of strings"
        if not isinstance(shell, str) or shell not in SHELLS:
            return f"shell {shell!r:.100} must be one of {', '.join(SHELLS)}"
        wakes = handler.get("asyncRewake") is True
        return {
            "command": line,
            "args": tuple(words) if words is not None else None,
            "in_background": wakes or handler.get("async") is True,
            "wakes": wakes,
            "shell": shell,
        }

    @property
    def subject(self) -> str:
        return self.command

    def own_json(self) -> Json:
        return {
            "command": self.command,
            **({"args": list(self.args)} if self.args is not None else {}),
            "async": self.in_background,
            **({"asyncRewake": True} if self.wakes else {}),
            **({"shell": self.shell} if self.shell != BASH else {}),
        }

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        stdout, stderr = OutputBuffer(), OutputBuffer()
        started = await self._start(invocation.input, stdout, stderr)
        reported = 0
        try:
            while not started.ended.done():
                if self.in_background or read_async_request(invocation.event, stdout) is not None:
                    return HookRun(
                        output=HookOutput(is_async=True),
                        background=self._wait_in_background(started, invocation.event, stdout, stderr),
                        wakes=self.wakes,
                    )
                events: set[asyncio.Future[Any]] = {started.ended}
                if not stdout.has_line.done():
                    events.add(stdout.has_line)
                done, _ = await asyncio.wait(events, timeout=PROGRESS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                written = stdout.total_bytes + stderr.total_bytes
                if reported != written and not done:
                    progress(stdout.text, stderr.text)
                    reported = written
        except asyncio.CancelledError:
            started.drop()
            raise
        if read_async_request(invocation.event, stdout) is not None:  # it finished before the check
            return HookRun(
                output=HookOutput(is_async=True),
                background=self._wait_in_background(started, invocation.event, stdout, stderr),
            )
        return self._build_run(invocation.event, started.ended.result(), stdout.data, stderr.text, is_cut=stdout.is_cut)

    async def _start(self, input: Json, stdout: OutputBuffer, stderr: OutputBuffer) -> Process:
        """Raises HookFailed."""
        context = self.get_runtime()
        argv = [*SHELLS[self.shell], self.command] if self.args is None else [*PROGRAM, self.command, *self.args]
        inherited = {name: value for name, value in context.environment.items() if name not in SHELL_STARTUP_VARIABLES}
        own = {"PATH": absolute_path_entries(inherited), "CLAUDE_PROJECT_DIR": context.project}
        environment = {**inherited, **own, **effort_variable(input)}
        prepared = PreparedCommand(argv=argv, cwd=context.project, environment=environment)
        try:
            started = await context.processes.start(prepared, stdout.append, stderr.append)
        except ToolError as exc:
            raise HookFailed(str(exc)) from None
        if started.feed is not None:
            with contextlib.suppress(OSError):  # it does not have to read its input
                started.feed.put(msgspec.json.encode(input) + b"\n")
                started.feed.finish()
        return started

    async def _wait_in_background(
        self, started: Process, event: HookEventSpec, stdout: OutputBuffer, stderr: OutputBuffer
    ) -> HookRun:
        """Wait for a background command until its timeout."""
        request = read_async_request(event, stdout)
        ms = request.asyncTimeout if request is not None else None
        seconds = ms / 1000 if ms is not None and ms > 0 else self.timeout_seconds
        try:
            done, _ = await asyncio.wait({started.ended}, timeout=seconds)
        finally:
            if not started.ended.done():
                started.drop()
        if not done:
            return HookRun(
                stdout=stdout.text,
                stderr=stderr.text,
                failure=f"the command did not finish within {seconds:g} s and was stopped",
            )
        data = stdout.data
        if request is not None:
            data = data.partition(b"\n")[2]  # the first line only announced the rest
        return self._build_run(event, started.ended.result(), data, stderr.text, is_cut=stdout.is_cut)

    def _build_run(
        self, event: HookEventSpec, end: CommandEnd, written: bytes, stderr: str, *, is_cut: bool
    ) -> HookRun:
        """The result of a finished command."""
        stdout = decode_output(written)
        code = 128 - end.exit_code if end.exit_code < 0 else end.exit_code
        fields: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "exit_code": code}
        if end.error:
            return HookRun(failure=end.error, **fields)
        if code == BLOCK_EXIT_CODE:
            return HookRun(blocks=(stderr.strip() or stdout.strip())[:MAX_REASON_CHARS], **fields)
        if code != 0:
            why = stderr.strip()[:MAX_REASON_CHARS]
            return HookRun(failure=f"exit code {code}" + (f": {why}" if why else ""), **fields)
        try:
            output, unknown = parse_reply(event, written, guards=self.guards, is_cut=is_cut)
        except HookFailed as exc:
            return HookRun(failure=str(exc), unknown=exc.unknown, **fields)
        return HookRun(output=output, unknown=unknown, **fields)


def read_async_request(event: HookEventSpec, stdout: OutputBuffer) -> HookOutput | None:
    """The output in the first line, if it requests to continue in the background."""
    line = stdout.first_line()
    if line is None or not line.lstrip().startswith(b"{"):
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, HookFailed):
        read, _ = parse_answer(event.name, msgspec.json.decode(line))
        return read if read.is_async else None
    return None


def effort_variable(input: Json) -> dict[str, str]:
    effort = input.get("effort")
    return {"CLAUDE_EFFORT": str(effort["level"])} if isinstance(effort, dict) else {}


def absolute_path_entries(environment: Mapping[str, str]) -> str:
    """PATH without relative entries, so that a hook never runs a program from the working tree."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry)) or os.defpath
