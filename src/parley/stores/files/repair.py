"""Repair a damaged transcript: truncate it after its last intact record and move the rest to another file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import RepairReport
from parley.stores.checksum_chain import ChainBroken, ChecksumChain
from parley.stores.files.transcript import is_intact_copy, was_ours
from parley.workspace import private_files

BLOCK = 1 << 20
BELOW = 2
"""`projects/<project>`, or `sessions/<session>`."""


def repair_file(path: Path, session_id: str) -> RepairReport | None:
    """Repair a file; None if it is intact. The caller holds the session. Raises SessionError."""
    try:
        end, size = find_sound_end(path, session_id)
        if end == size:
            return None
        aside = free_name(path)
        kept = path.with_name(f"{path.name}.mended")
        copy_range(path, kept, 0, end)
        copy_range(path, aside, end, size)
        with private_files.open_folder(path.parent, below=BELOW) as (folder, _):
            os.rename(kept.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as exc:
        raise SessionError(f"cannot repair the session at {path}: {exc.strerror}") from None
    return RepairReport(kept_bytes=end, aside_bytes=size - end, aside=str(aside))


def find_sound_end(path: Path, session_id: str) -> tuple[int, int]:
    """The end of the intact part, and the size of the file. Raises OSError."""
    chain, end, at, doubtful = ChecksumChain(), 0, 0, False
    with open(private_files.open_file(path, os.O_RDONLY, below=BELOW), "rb") as file:
        for raw in file:
            body = raw.rstrip(b"\n")
            try:
                is_ours = chain.verify(body)
            except ChainBroken:
                break
            at += len(raw)
            if is_ours:
                # It continues from our last good record, so nothing of ours was in between.
                end, doubtful = at, False
            elif raw.endswith(b"\n") and is_readable(body, session_id, chain):
                end = end if doubtful else at
            else:
                doubtful = True
        return end, os.fstat(file.fileno()).st_size


def is_readable(body: bytes, session_id: str, chain: ChecksumChain) -> bool:
    """Whether a line is empty, from another program, or an intact copy of ours."""
    if not body.strip():
        return True
    try:
        json = msgspec.json.decode(body, type=Json)
        return not was_ours(json, body) or is_intact_copy(json, body, session_id, chain)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def free_name(path: Path) -> Path:
    """An unused file name in the same directory that is not read as a transcript."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *(f"-{n}" for n in range(2, 100))))
    return next(name for name in names if not os.path.lexists(name))


def copy_range(source: Path, target: Path, begin: int, end: int) -> None:
    """Copy a range of a file to a new file and sync it to disk. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        open(private_files.open_file(source, os.O_RDONLY, below=BELOW), "rb") as file,
        open(private_files.open_file(target, flags, below=BELOW), "wb") as part,
    ):
        file.seek(begin)
        while begin < end and (block := file.read(min(BLOCK, end - begin))):
            part.write(block)
            begin += len(block)
        part.flush()
        os.fsync(part.fileno())


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
