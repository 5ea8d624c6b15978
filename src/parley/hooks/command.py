"""A command of the settings as a hook: the event as JSON on stdin, the answer by exit code and stdout.

    exit 0     stdout is the answer if it is a JSON object; else it is context, for events that take text
    exit 2     it blocks, and stderr says why
    others     it failed; `onFailure` says what follows (before a call: the call is denied)

A command whose first line is `{"async": true}`, or whose entry says `async`, goes on in the
background. It runs in the project folder, wherever the session's shell is: a script that is named by a relative path
is always the same. It runs behind the guard of all commands, without keys in its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from parley.errors import ToolError
from parley.hooks.base import HookEventSpec, HookInvocation, HookRun, OnFailure, Progress
from parley.hooks.matcher import Matcher
from parley.hooks.output import MOST_REASON_CHARS, MUST_DECIDE, HookFailed, HookOutput, SpecificOutput, parse_answer
from parley.protocol.base import Json, Struct
from parley.protocol.duplicate_keys import find_duplicate_key
from parley.workspace.process.processes import CommandEnd, Processes
from parley.workspace.process.processes import RunningCommand as Process

SHELL = ["/bin/bash", "--norc", "--noprofile", "-c"]
PROGRAM = ["/bin/sh", "-c", 'exec "$0" "$@"']
"""Runs words as they are, found on the PATH."""
PROGRESS_SECONDS = 1.0
KEPT_BYTES = 4 * 1024 * 1024
"""An answer may hold another output for a tool, so this is more than tools put out."""
NOT_FOR_COMMANDS = ("BASH_ENV", "ENV")
"""What would be sourced before the command."""
BLOCKS = 2
ANSWER = r'"(hookSpecificOutput|permissionDecision|decision)"\s*:'
"""What an answer has that does not begin where it should: after a line of a log, or in a list."""


class CommandEntry(Struct, frozen=True, kw_only=True):
    """One command as the settings have it."""

    event: str
    matcher: str
    command: str
    args: tuple[str, ...] | None = None
    timeout_seconds: float
    on_failure: OnFailure = "continue"
    in_background: bool = False
    source: str
    """The file it is from."""
    unusable: str = ""
    """Why it cannot be run at all: it fails whenever it is asked."""


class HookEnvironment(Struct, frozen=True, kw_only=True):
    """Where commands run."""

    processes: Processes
    environment: Mapping[str, str]
    """The session's, which changes with its settings."""
    project: str
    """The folder they run in. The session's shell may be elsewhere: the model moves it."""


class OutputBuffer:
    """What a command wrote to one of its streams, as far as it is kept."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.total_bytes = 0
        self.has_line: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first line is there."""

    def append(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._data += data[: max(0, KEPT_BYTES - len(self._data))]
        if b"\n" in data and not self.has_line.done():
            self.has_line.set_result(None)

    @property
    def is_cut(self) -> bool:
        return self.total_bytes > len(self._data)

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace").replace("\0", "\ufffd")

    def first_line(self) -> bytes | None:
        line, end, _ = self._data.partition(b"\n")
        return bytes(line) if end else None


class CommandHook:
    def __init__(self, entry: CommandEntry, place: HookEnvironment) -> None:
        self._entry = entry
        self._environment = place
        self.event = entry.event
        self.matcher = Matcher(entry.matcher)
        self.timeout_seconds = entry.timeout_seconds
        self.on_failure = entry.on_failure
        self.source = entry.source
        self.label = f"command {entry.command!r} of {entry.source}" if not entry.unusable else f"hook of {entry.source}"

    async def run(self, fired: HookInvocation, progress: Progress) -> HookRun:
        if self._entry.unusable:
            raise HookFailed(self._entry.unusable)
        stdout, stderr = OutputBuffer(), OutputBuffer()
        started = await self._start(fired.input, stdout, stderr)
        told = 0
        try:
            while not started.ended.done():
                if self._entry.in_background or read_async_request(fired.event, stdout) is not None:
                    return HookRun(
                        output=HookOutput(is_async=True),
                        background=self._wait_in_background(started, fired.event, stdout, stderr),
                    )
                news: set[asyncio.Future[Any]] = {started.ended}
                if not stdout.has_line.done():
                    news.add(stdout.has_line)
                some, _ = await asyncio.wait(news, timeout=PROGRESS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                written = stdout.total_bytes + stderr.total_bytes
                if told != written and not some:
                    progress(stdout.text, stderr.text)
                    told = written
        except asyncio.CancelledError:
            started.drop()
            raise
        if read_async_request(fired.event, stdout) is not None:  # it was faster than we looked
            return HookRun(
                output=HookOutput(is_async=True),
                background=self._wait_in_background(started, fired.event, stdout, stderr),
            )
        return build_run(fired.event, started.ended.result(), stdout.text, stderr.text, is_cut=stdout.is_cut)

    async def _start(self, input: Json, stdout: OutputBuffer, stderr: OutputBuffer) -> Process:
        """Raises HookFailed."""
        entry, place = self._entry, self._environment
        argv = [*SHELL, entry.command] if entry.args is None else [*PROGRAM, entry.command, *entry.args]
        inherited = {name: value for name, value in place.environment.items() if name not in NOT_FOR_COMMANDS}
        try:
            started = await place.processes.start(
                argv,
                cwd=place.project,
                environment={
                    **inherited,
                    "PATH": absolute_path_entries(inherited),
                    "CLAUDE_PROJECT_DIR": place.project,
                },
                take=stdout.append,
                take_errors=stderr.append,
            )
        except ToolError as exc:
            raise HookFailed(str(exc)) from None
        if started.feed is not None:
            with contextlib.suppress(OSError):  # it need not read what it is told
                started.feed.put(msgspec.json.encode(input) + b"\n")
                started.feed.finish()
        return started

    async def _wait_in_background(
        self, started: Process, event: HookEventSpec, stdout: OutputBuffer, stderr: OutputBuffer
    ) -> HookRun:
        """Wait for one that goes on in the background, no longer than it may take."""
        asked = read_async_request(event, stdout)
        ms = asked.asyncTimeout if asked is not None else None
        seconds = ms / 1000 if ms is not None and ms > 0 else self.timeout_seconds
        try:
            done, _ = await asyncio.wait({started.ended}, timeout=seconds)
        finally:
            if not started.ended.done():
                started.drop()
        if not done:
            return HookRun(
                stdout=stdout.text, stderr=stderr.text, failure=f"it did not end within {seconds:g} s and was ended"
            )
        text = stdout.text
        if asked is not None:
            text = text.partition("\n")[2]  # the first line only said that there is more to come
        return build_run(event, started.ended.result(), text, stderr.text, is_cut=stdout.is_cut)

    def to_json(self) -> Json:
        entry = self._entry
        return {
            "event": entry.event,
            "matcher": entry.matcher,
            "type": "command",
            "command": entry.command,
            **({"args": list(entry.args)} if entry.args is not None else {}),
            "source": entry.source,
            "timeout": entry.timeout_seconds,
            "onFailure": entry.on_failure,
            "async": entry.in_background,
        }


def read_async_request(event: HookEventSpec, stdout: OutputBuffer) -> HookOutput | None:
    """What the first line says, if it says that the rest comes later."""
    line = stdout.first_line()
    if line is None or not line.lstrip().startswith(b"{"):
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, HookFailed):
        read, _ = parse_answer(event.name, msgspec.json.decode(line))
        return read if read.is_async else None
    return None


def build_run(event: HookEventSpec, end: CommandEnd, stdout: str, stderr: str, *, is_cut: bool) -> HookRun:
    """What a command that is over has said."""
    code = 128 - end.exit_code if end.exit_code < 0 else end.exit_code
    told: dict[str, Any] = {"stdout": stdout, "stderr": stderr, "exit_code": code}
    if end.error:
        return HookRun(failure=end.error, **told)
    if code == BLOCKS:
        return HookRun(blocks=(stderr.strip() or stdout.strip())[:MOST_REASON_CHARS], **told)
    if code != 0:
        why = stderr.strip()[:MOST_REASON_CHARS]
        return HookRun(failure=f"exit code {code}" + (f": {why}" if why else ""), **told)
    try:
        output, unknown = parse_stdout(event, stdout.strip().removeprefix("\ufeff").strip(), is_cut=is_cut)
    except HookFailed as exc:
        return HookRun(failure=str(exc), unknown=exc.unknown, **told)
    return HookRun(output=output, unknown=unknown, **told)


def parse_stdout(event: HookEventSpec, text: str, *, is_cut: bool) -> tuple[HookOutput, tuple[str, ...]]:
    """The answer in what a command wrote, and its unknown keys. Raises HookFailed if it is a wrong one.

    What begins like an answer and is none must not pass for silence: it may have been a denial.
    """
    if text.startswith("{"):
        if is_cut:
            raise HookFailed(f"its answer is longer than {KEPT_BYTES} bytes")
        try:
            answer = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
            if not event.accepts_text:
                raise HookFailed(f"its answer is no JSON: {exc}") from None
        else:
            if (doubled := find_duplicate_key(text)) is not None:
                raise HookFailed(f"its answer cannot be understood: {doubled}")
            return parse_answer(event.name, answer)
    if event.name in MUST_DECIDE and is_cut:
        raise HookFailed(f"its output is longer than {KEPT_BYTES} bytes")
    if event.name in MUST_DECIDE and (found := re.search(ANSWER, text.replace("\ufffd", ""))) is not None:
        raise HookFailed(f"its output has an answer in it ({found[0]}), and does not begin with it")
    if text and event.accepts_text:
        return HookOutput(hookSpecificOutput=SpecificOutput(additionalContext=text)), ()
    return HookOutput(), ()


def absolute_path_entries(environment: Mapping[str, str]) -> str:
    """The PATH without relative entries: a program that a guard calls is not to be found in the working tree."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if os.path.isabs(entry)) or os.defpath
