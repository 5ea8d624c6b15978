"""The results of an evaluation: a folder with a file to which each run is appended when it ends.

    eval-results/notes-1/
        results.jsonl     a header, then one record for each run (`stores/records.py`)
        recordings/       the messages of each session, and its model calls

A process that is killed loses only the runs that had not ended: `--resume` runs those. One process at a time writes
to a folder.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Literal

import msgspec

from parley.errors import UsageError
from parley.evals.suite import RunKey
from parley.protocol.base import Struct
from parley.stores.records import EVALUATION, RecordFile, RecordWriter, read_records
from parley.workspace import private_files

FILE_NAME = "results.jsonl"
RECORDINGS = "recordings"
TEMPORARY = "workspaces"
"""A file with the path of the folder that contains the workspaces of the running sessions."""
TEMPORARY_PREFIX = "parley-eval-"

Outcome = Literal["passed", "failed", "error", "stopped"]
"""`error`: the session failed, so that nothing could be checked. `stopped`: the budget was spent; it runs again."""


class EvalCheckResult(Struct, frozen=True, kw_only=True):
    """One expectation of a run."""

    check: str
    """What was checked, such as `command: pytest -q`."""
    passed: bool | None
    """None if it was not checked; `detail` says why."""
    detail: str = ""


class ResultsHeader(Struct, frozen=True, kw_only=True):
    """The header of the file."""

    suite: str
    """The path of the file with the cases."""
    digest: str
    started_at: str = ""
    by: str = ""


class RunRecord(Struct, frozen=True, kw_only=True):
    """The outcome of one run."""

    case: str
    configuration: str
    run: int
    outcome: Outcome
    checks: list[EvalCheckResult] = []
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

    def __init__(
        self, folder: Path, writer: RecordWriter, records: dict[RunKey, RunRecord], ended_ms: float = 0
    ) -> None:
        """`ended_ms`: the time of the last record. That between two processes is left out."""
        self.folder = folder
        self.records = records
        self._writer = writer
        self._started = time.monotonic() - ended_ms / 1000
        self.workspaces = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
        private_files.replace(folder / TEMPORARY, str(self.workspaces).encode())

    def append(self, record: RunRecord) -> None:
        """Raises OSError."""
        self._writer.append((time.monotonic() - self._started) * 1000, record)
        self.records[record.key] = record

    def close(self) -> None:
        self._writer.close()
        shutil.rmtree(self.workspaces, ignore_errors=True)
        (self.folder / TEMPORARY).unlink(missing_ok=True)


def create_results(folder: Path, header: ResultsHeader) -> ResultsFolder:
    """Raises UsageError if the folder has results already."""
    try:
        with private_files.open_folder(folder / RECORDINGS, make=True):
            pass
        return ResultsFolder(folder, RecordWriter.create(folder / FILE_NAME, EVALUATION, header), {})
    except FileExistsError:
        raise UsageError(
            f"{folder} has results already; add --resume to continue them, or choose another folder with --results"
        ) from None
    except OSError as exc:
        raise UsageError(f"cannot create {folder}: {exc.strerror}") from None


def resume_results(folder: Path, digest: str) -> ResultsFolder:
    """Open the results of an interrupted run. Raises UsageError."""
    path = folder / FILE_NAME
    try:
        writer, found = RecordWriter.resume(path, EVALUATION)
    except BlockingIOError:
        raise UsageError(
            f"another process is writing the results in {folder}; wait for it, or choose another folder with --results"
        ) from None
    except OSError as exc:
        raise UsageError(f"cannot resume: {path}: {exc.strerror}") from None
    header, records = decode_results(found)
    if header.digest != digest:
        writer.close()
        raise UsageError(
            f"the cases or configurations of {header.suite} have changed since {folder} was started; "
            "run without --resume to start again"
        )
    remove_leftovers(folder)
    return ResultsFolder(folder, writer, records, found.records[-1].at_ms if found.records else 0)


def remove_leftovers(folder: Path) -> None:
    """Remove the workspaces of a process that was killed."""
    try:
        left = Path((folder / TEMPORARY).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return
    if left.parent == Path(tempfile.gettempdir()) and left.name.startswith(TEMPORARY_PREFIX) and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)


def read_results(path: Path) -> tuple[ResultsHeader, dict[RunKey, RunRecord]]:
    """Read a folder or its file; the last record of a run counts. Raises UsageError, which names the line."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        return decode_results(read_records(file, EVALUATION))
    except OSError as exc:
        raise UsageError(f"cannot read the results {file}: {exc.strerror}") from None


_run = msgspec.json.Decoder(RunRecord)


def decode_results(file: RecordFile) -> tuple[ResultsHeader, dict[RunKey, RunRecord]]:
    """Raises UsageError."""
    runs = [record.decode(_run) for record in file.records]
    return file.decode_header(ResultsHeader), {run.key: run for run in runs}
