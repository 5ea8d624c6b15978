"""Repair a damaged transcript: truncate it after its last intact record and move the rest to another file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from parley.errors import DamagedSession, explain_os_errors
from parley.stores.base import RepairReport
from parley.stores.files.transcript import TranscriptReader
from parley.workspace import private_files

BLOCK = 1 << 20
BELOW = 2
"""`projects/<project>`, or `sessions/<session>`."""


def repair_file(path: Path, session_id: str) -> RepairReport | None:
    """Repair a file; None if it is intact. The caller holds the session. Raises SessionError."""
    with explain_os_errors(f"cannot repair the session at {path}"):
        end, size = find_sound_end(path, session_id)
        if end == size:
            return None
        aside = free_name(path)
        with (
            open(private_files.open_file(path, os.O_RDONLY, below=BELOW), "rb") as file,
            private_files.open_folder(path.parent, below=BELOW) as (folder, owner),
            private_files.replacing(folder, path.name, sync=True) as kept,
        ):
            copy_range(file, kept, end)
            damaged = private_files.open_in(folder, owner, str(aside), private_files.NEW)
            try:
                copy_range(file, damaged, size - end)
                os.fsync(damaged)
            finally:
                os.close(damaged)
    return RepairReport(kept_bytes=end, aside_bytes=size - end, aside=str(aside))


def find_sound_end(path: Path, session_id: str) -> tuple[int, int]:
    """The end of the intact part, and the size of the file. Raises OSError."""
    reader = TranscriptReader(path, session_id)
    end, at, doubtful = 0, 0, False
    with open(private_files.open_file(path, os.O_RDONLY, below=BELOW), "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = reader.read_line(raw, number)
            except DamagedSession:
                break
            at += len(raw)
            if line is not None and line[1]:
                # It continues from our last good record, so nothing of ours was in between.
                end, doubtful = at, False
            elif line is not None and raw.endswith(b"\n"):
                end = end if doubtful else at
            else:
                doubtful = True
        return end, os.fstat(file.fileno()).st_size


def free_name(path: Path) -> Path:
    """An unused file name in the same directory that is not read as a transcript."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *(f"-{n}" for n in range(2, 100))))
    return next(name for name in names if not os.path.lexists(name))


def copy_range(source: BinaryIO, target: int, size: int) -> None:
    """Copy the next `size` bytes of a file. Raises OSError."""
    while size > 0 and (block := source.read(min(BLOCK, size))):
        private_files.write_all(target, block)
        size -= len(block)


def truncate_partial_line(file: int) -> bool:
    """Remove a partial last line, left by a crash or a full disk.

    Returns False, and changes nothing, if the last line is valid JSON and only its newline is missing. Raises OSError.
    """
    size = end = os.fstat(file).st_size
    tail = b""
    while end > 0 and b"\n" not in tail:
        begin = max(0, end - BLOCK)
        tail = os.pread(file, end - begin, begin) + tail
        end = begin
    partial = tail[tail.rfind(b"\n") + 1 :]
    if not partial:
        return True
    try:
        msgspec.json.decode(partial)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        os.ftruncate(file, size - len(partial))
        return True
    return False
