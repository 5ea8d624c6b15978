"""Whether a run met the expectations of its case.

Commands are run by the evaluator, in the workspace, without API keys and without the permissions of the agent: they
may run what the agent wrote. Each has a deadline, after which its whole process tree is ended.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from parley.errors import ToolError
from parley.evals.results import CheckResult
from parley.evals.session import AgentRun
from parley.evals.suite import Expectations, ExpectedCommand, to_list
from parley.settings.secret_variables import without_secrets
from parley.workspace.process.processes import CommandOutput, Processes

SHELL = "/bin/sh"
SHOWN_CHARS = 400
OUTPUT_BYTES = 64 * 1024
MAX_FILE_BYTES = 16 * 1024 * 1024


def check_agent(expect: Expectations, run: AgentRun, workspace: Path) -> list[CheckResult]:
    """Everything except commands and the rubric."""
    return [*check_result(expect, run.text), *check_files(expect, workspace), *check_tools(expect, run)]


def check_result(expect: Expectations, text: str) -> Iterator[CheckResult]:
    for wanted in to_list(expect.result_contains):
        yield verdict(f"result contains {wanted!r}", wanted in text, f"the result is {shorten(text)!r}")
    for pattern in to_list(expect.result_matches):
        is_found = re.search(pattern, text) is not None
        yield verdict(f"result matches {pattern!r}", is_found, f"the result is {shorten(text)!r}")


def check_files(expect: Expectations, workspace: Path) -> Iterator[CheckResult]:
    for name, wanted in expect.files.items():
        found = read_file(workspace, name)
        detail = found.problem or f"it contains {shorten(found.text)!r} instead of {shorten(wanted)!r}"
        yield verdict(f"file {name}", not found.problem and found.text == wanted, detail)
    for name, parts in expect.file_contains.items():
        found = read_file(workspace, name)
        for part in to_list(parts):
            detail = found.problem or f"it contains {shorten(found.text)!r}"
            yield verdict(f"file {name} contains {part!r}", not found.problem and part in found.text, detail)
    for name in expect.missing_files:
        yield verdict(f"no file {name}", not os.path.lexists(workspace / name), "the file exists")


def check_tools(expect: Expectations, run: AgentRun) -> Iterator[CheckResult]:
    called = ", ".join(run.tools) or "no tool"
    for name in expect.tools:
        yield verdict(f"tool {name} called", name in run.tools, f"called: {called}")
    for name in expect.no_tools:
        yield verdict(f"tool {name} not called", name not in run.tools, f"it was called {run.tools[name]} times")


def verdict(check: str, passed: bool, detail: str) -> CheckResult:
    return CheckResult(check=check, passed=passed, detail="" if passed else detail)


class FoundFile:
    """A file of the workspace, or why it cannot be read."""

    def __init__(self, text: str = "", problem: str = "") -> None:
        self.text = text
        self.problem = problem


def read_file(workspace: Path, name: str) -> FoundFile:
    """Files outside the workspace are not read, even if a link leads there."""
    path = (workspace / name).resolve()
    if not path.is_relative_to(workspace.resolve()):
        return FoundFile(problem="the path leads out of the workspace")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return FoundFile(problem=f"the file is larger than {MAX_FILE_BYTES >> 20} MB")
        return FoundFile(path.read_bytes().decode())
    except UnicodeDecodeError:
        return FoundFile(problem="the file is not UTF-8 text")
    except OSError as exc:
        return FoundFile(problem=f"cannot read the file: {exc.strerror}")


async def run_command(
    command: ExpectedCommand, workspace: Path, processes: Processes, environment: Mapping[str, str]
) -> CheckResult:
    """Run a command of a case. It passes if it exits with 0 in time."""
    check = f"command: {command.run}"
    output = CommandOutput(OUTPUT_BYTES, lambda: Path(tempfile.mkdtemp(dir=workspace.parent)) / "output")
    try:
        done = await processes.run(
            [SHELL, "-c", command.run],
            cwd=str(workspace),
            environment=without_secrets(environment),
            timeout_seconds=command.timeout_seconds,
            output=output,
        )
    except ToolError as exc:
        return verdict(check, False, str(exc))
    tail = shorten(done.output.decode(errors="replace").strip(), from_end=True)
    if done.timed_out:
        detail = f"it did not end within {command.timeout_seconds:g} s (timeout_seconds); its processes were ended"
        return verdict(check, False, f"{detail}; output: {tail!r}" if tail else detail)
    return verdict(check, done.exit_code == 0, f"exit code {done.exit_code}: {tail}")


def shorten(text: str, limit: int = SHOWN_CHARS, *, from_end: bool = False) -> str:
    if len(text) <= limit:
        return text
    return f"…{text[-limit:]}" if from_end else f"{text[:limit]}…"
