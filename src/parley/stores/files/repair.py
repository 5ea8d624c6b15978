"""A damaged transcript file, cut where its good part ends; the rest is put aside, not thrown away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Json
from parley.stores.base import Mended
from parley.stores.checksum_chain import Hole, Seal
from parley.stores.files.provenance import is_copy, was_ours
from parley.workspace import private_files

BLOCK = 1 << 20
BELOW = 2
"""`projects/<project>`, or `sessions/<session>`."""


def mend(path: Path, session_id: str) -> Mended | None:
    """None if nothing is wrong with it. The caller holds the session. Raises SessionError."""
    try:
        end, size = sound(path, session_id)
        if end == size:
            return None
        aside = free(path)
        kept = path.with_name(f"{path.name}.mended")
        copy(path, kept, 0, end)
        copy(path, aside, end, size)
        with private_files.opened_folder(path.parent, below=BELOW) as (folder, _):
            os.rename(kept.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as flaw:
        raise SessionError(f"the session cannot be repaired at {path}: {flaw.strerror}") from None
    return Mended(kept_bytes=end, aside_bytes=size - end, aside=str(aside))


def sound(path: Path, session_id: str) -> tuple[int, int]:
    """Where the part ends that is certainly whole, and the file. Raises OSError."""
    seal, end, at, doubtful = Seal(), 0, 0, False
    with open(private_files.open_file(path, os.O_RDONLY, below=BELOW), "rb") as file:
        for raw in file:
            body = raw.rstrip(b"\n")
            try:
                is_ours = seal.holds(body)
            except Hole:
                break
            at += len(raw)
            if is_ours:
                # It follows on our last good record, so what was between them was nothing of ours.
                end, doubtful = at, False
            elif raw.endswith(b"\n") and readable(body, session_id, seal):
                end = end if doubtful else at
            else:
                doubtful = True
        return end, os.fstat(file.fileno()).st_size


def readable(body: bytes, session_id: str, seal: Seal) -> bool:
    """Whether it is a line of another program, a copy of ours, or none at all."""
    if not body.strip():
        return True
    try:
        json = msgspec.json.decode(body, type=Json)
        return not was_ours(json, body) or is_copy(json, body, session_id, seal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def free(path: Path) -> Path:
    """A name beside the file that nobody takes for a transcript."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *(f"-{n}" for n in range(2, 100))))
    return next(name for name in names if not os.path.lexists(name))


def copy(source: Path, goal: Path, begin: int, end: int) -> None:
    """A part of a file as a file of its own, on the device. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        open(private_files.open_file(source, os.O_RDONLY, below=BELOW), "rb") as file,
        open(private_files.open_file(goal, flags, below=BELOW), "wb") as part,
    ):
        file.seek(begin)
        while begin < end and (block := file.read(min(BLOCK, end - begin))):
            part.write(block)
            begin += len(block)
        part.flush()
        os.fsync(part.fileno())


def is_cut_off(file: int) -> bool:
    """Cut off half a line, left by a crash or a full disk; False if the file ends in a whole line without its end.

    Raises OSError.
    """
    size = end = os.fstat(file).st_size
    tail = b""
    while end > 0 and b"\n" not in tail:
        begin = max(0, end - BLOCK)
        tail = os.pread(file, end - begin, begin) + tail
        end = begin
    half = tail[tail.rfind(b"\n") + 1 :]
    if not half:
        return True
    try:
        msgspec.json.decode(half)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        os.ftruncate(file, size - len(half))
        return True
    return False
