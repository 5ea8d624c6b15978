"""The results of an evaluation: a folder with a file to which each run is appended when it ends.

    eval-results/notes-1/
        results.jsonl     a header, then one line for each run
        recordings/       the messages of each session, and its model calls

A process that is killed loses only the runs that had not ended: `--resume` runs those. One process at a time writes
to a folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from parley.errors import UsageError
from parley.evals.plan import RunKey
from parley.protocol.base import Struct
from parley.workspace import private_files

VERSION = 1
FILE_NAME = "results.jsonl"
RECORDINGS = "recordings"
TEMPORARY = "workspaces"
"""A file with the path of the folder that contains the workspaces of the running sessions."""
TEMPORARY_PREFIX = "parley-eval-"

Outcome = Literal["passed", "failed", "error", "stopped"]
"""`error`: the session failed, so that nothing could be checked. `stopped`: the budget was spent; it runs again."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """One expectation of a run."""

    check: str
    """What was checked, such as `command: pytest -q`."""
    passed: bool | None
    """None if it was not checked; `detail` says why."""
    detail: str = ""


class ResultsHeader(Struct, frozen=True, kw_only=True, tag="eval", tag_field="type"):
    """The first line."""

    version: int = VERSION
    suite: str
    """The path of the file with the cases."""
    digest: str
    started_at: str = ""
    by: str = ""


class RunRecord(Struct, frozen=True, kw_only=True, tag="run", tag_field="type"):
    """The outcome of one run."""

    case: str
    configuration: str
    run: int
    outcome: Outcome
    checks: list[CheckResult] = []
    error: str = ""
    result: str = ""
    """The last answer, shortened."""
    tools: dict[str, int] = {}
    """How often each tool was called."""
    denied: list[str] = []
    """Tools whose calls were denied."""
    warnings: list[str] = []
    turns: int = 0
    """Model calls."""
    cost_usd: float | None = None
    judge_cost_usd: float | None = None
    seconds: float = 0
    session_id: str = ""
    recording: str = ""
    """The start of the paths of its recordings: `.wire.jsonl` and `.model.jsonl` follow."""

    @property
    def key(self) -> RunKey:
        return self.case, self.configuration, self.run

    @property
    def reasons(self) -> list[str]:
        """Why it did not pass."""
        failed = [f"{each.check}: {each.detail}" for each in self.checks if each.passed is False]
        return [self.error, *failed] if self.error else failed


class ResultsFolder:
    """The results of an evaluation that is running."""

    def __init__(self, folder: Path, file: int, records: dict[RunKey, RunRecord]) -> None:
        self.folder = folder
        self.records = records
        self._file = file
        self.workspaces = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
        private_files.replace(folder / TEMPORARY, str(self.workspaces).encode())

    def append(self, record: RunRecord) -> None:
        """Raises OSError."""
        private_files.write_all(self._file, msgspec.json.encode(record) + b"\n")
        self.records[record.key] = record

    def close(self) -> None:
        os.close(self._file)
        shutil.rmtree(self.workspaces, ignore_errors=True)
        (self.folder / TEMPORARY).unlink(missing_ok=True)


def create_results(folder: Path, header: ResultsHeader) -> ResultsFolder:
    """Raises UsageError if the folder has results already."""
    try:
        with private_files.open_folder(folder / RECORDINGS, make=True):
            file = private_files.open_file(folder / FILE_NAME, private_files.NEW | os.O_APPEND)
    except FileExistsError:
        raise UsageError(
            f"{folder} has results already; add --resume to continue them, or choose another folder with --results"
        ) from None
    except OSError as exc:
        raise UsageError(f"cannot create {folder}: {exc.strerror}") from None
    lock(file, folder)
    os.write(file, msgspec.json.encode(header) + b"\n")
    return ResultsFolder(folder, file, {})


def resume_results(folder: Path, digest: str) -> ResultsFolder:
    """Open the results of an interrupted run. Raises UsageError."""
    path = folder / FILE_NAME
    try:
        file = private_files.open_file(path, os.O_RDWR | os.O_APPEND)
    except OSError as exc:
        raise UsageError(f"cannot resume: {path}: {exc.strerror}") from None
    lock(file, folder)
    header, records = read_results(folder)
    if header.digest != digest:
        os.close(file)
        raise UsageError(
            f"the cases or configurations of {header.suite} have changed since {folder} was started; "
            "run without --resume to start again"
        )
    # A killed process may have written a part of a line.
    os.ftruncate(file, path.read_bytes().rfind(b"\n") + 1)
    remove_leftovers(folder)
    return ResultsFolder(folder, file, records)


def lock(file: int, folder: Path) -> None:
    """Raises UsageError if another process writes the results."""
    if not private_files.lock(file, timeout_seconds=0):
        os.close(file)
        raise UsageError(
            f"another process is writing the results in {folder}; wait for it, or choose another folder with --results"
        )


def remove_leftovers(folder: Path) -> None:
    """Remove the workspaces of a process that was killed."""
    try:
        left = Path((folder / TEMPORARY).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return
    if left.parent == Path(tempfile.gettempdir()) and left.name.startswith(TEMPORARY_PREFIX) and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)


_decoder = msgspec.json.Decoder(ResultsHeader | RunRecord)


def read_results(path: Path) -> tuple[ResultsHeader, dict[RunKey, RunRecord]]:
    """Read a folder or its file; the last record of a run counts. Raises UsageError, which names the line."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError as exc:
        raise UsageError(f"cannot read the results {file}: {exc.strerror}") from None
    records: dict[RunKey, RunRecord] = {}
    header: ResultsHeader | None = None
    for number, line in enumerate(lines, 1):
        try:
            found = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise UsageError(f"{file}:{number}: not a result of parley eval: {exc}") from None
        if isinstance(found, RunRecord):
            records[found.key] = found
        elif number == 1:
            header = found
    if header is None:
        raise UsageError(f"{file}:1: found no header; expected the results of parley eval")
    if header.version != VERSION:
        raise UsageError(f"{file}:1: the results have version {header.version}; only version {VERSION} is supported")
    return header, records
