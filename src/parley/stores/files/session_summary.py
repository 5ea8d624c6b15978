"""List, label and search transcript files. Listing reads only the first and the last 64 KiB of each file.

Titles and tags are lines of their own, as the session functions of the official SDKs write and read them; the last
one takes effect.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import DamagedSession, SessionError, explain_os_errors
from parley.protocol.base import Json, encode_json
from parley.stores.base import AgentInfo, Entry, Info
from parley.stores.files.transcript import AGENT_BELOW, BELOW, TAIL_BYTES, TranscriptReader
from parley.stores.search_text import first_prompt
from parley.workspace import private_files

TITLES = ((b"custom-title", "customTitle"), (b"ai-title", "aiTitle"))
LINES_FOR_BRANCH = 8


def sort_by_age(files: Iterable[Path], warn: Callable[[str], None]) -> list[Path]:
    """The files, most recently written first. Files that are unsafe to open are skipped with a warning."""
    aged: list[tuple[int, Path]] = []
    owners: dict[Path, int | None] = {}
    for file in files:
        try:
            if file.parent not in owners:
                owners[file.parent] = None
                with private_files.open_folder(file.parent, below=BELOW) as (_, owner):
                    owners[file.parent] = owner
            if (owner_of_root := owners[file.parent]) is not None:
                status = os.stat(file, follow_symlinks=False)
                private_files.check_regular(status, file, owner_of_root, writes=False)
                aged.append((status.st_mtime_ns, file))
        except private_files.UnsafeFile as exc:
            warn(f"a session is not listed: {exc.strerror}")
        except OSError:
            continue  # deleted in the meantime
    return [file for _, file in sorted(aged, key=lambda pair: pair[0], reverse=True)]


def summarize(path: Path, session_id: str) -> Info | None:
    """The list entry of a transcript; None if it cannot be read or is not a session's."""
    try:
        file = private_files.open_file(path, os.O_RDONLY, below=BELOW)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        head = os.pread(file, TAIL_BYTES, 0)
        tail = os.pread(file, TAIL_BYTES, status.st_size - TAIL_BYTES) if status.st_size > TAIL_BYTES else head
    except OSError:
        return None
    finally:
        os.close(file)
    if not head or b'"isSidechain":true' in head[: head.find(b"\n")]:
        return None
    first, prompt = read_beginning(head)
    return Info(
        id=session_id,
        cwd=text_or_none(first.get("cwd")) or "",
        title=read_title(tail) or read_title(head),
        first_prompt=prompt,
        created=text_or_none(first.get("timestamp")) or utc(status.st_mtime),
        modified=utc(status.st_mtime),
        size_bytes=status.st_size,
        tag=text_or_none((find_last(tail, b"tag") or find_last(head, b"tag") or {}).get("tag")),
        git_branch=read_branch(tail) or text_or_none(first.get("gitBranch")),
    )


def read_beginning(head: bytes) -> tuple[Json, str | None]:
    """The first line with a `cwd`, and the first prompt."""
    first: Json = {}
    for line in head.split(b"\n"):
        if not line:
            continue
        json = decode_line(line)
        if "cwd" in json:
            first = first or json
            prompt = first_prompt(str(json.get("type")), json)
            if prompt is not None:
                return first, prompt
    return first, None


def read_title(part: bytes) -> str | None:
    for kind, field in TITLES:
        if found := text_or_none((find_last(part, kind) or {}).get(field)):
            return found
    return None


def find_last(part: bytes, kind: bytes) -> Json | None:
    """The last line of a type. `type` is the first field of such lines."""
    begins = b'{"type":"%b"' % kind
    at = part.rfind(b"\n" + begins) + 1
    if at == 0 and not part.startswith(begins):
        return None
    return decode_line(part[at:].partition(b"\n")[0])


def read_branch(tail: bytes) -> str | None:
    for line in tail.rsplit(b"\n", LINES_FOR_BRANCH)[:0:-1]:
        if b'"gitBranch":"' in line:
            return text_or_none(decode_line(line).get("gitBranch"))
    return None


def decode_line(line: bytes) -> Json:
    """The object of a line; empty if it is not a JSON object."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03}Z"


def append_label(path: Path, line: Json) -> None:
    """Append a line without a checksum, because the holder of the session may write at the same time.

    The file keeps its time of modification: sessions are listed and continued in the order of their last messages.
    """
    with explain_os_errors(f"cannot write the session to {path}"):
        file = private_files.open_file(path, os.O_RDWR | os.O_APPEND, below=BELOW)
        try:
            private_files.lock(file)  # the holder may be removing a partial line
            before = os.fstat(file)
            size = before.st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            written = (b"\n" if torn else b"") + encode_json(line) + b"\n"
            if os.write(file, written) != len(written):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            # Programs other than Parley write without the lock; then the time is theirs. Only the owner may set it.
            if os.fstat(file).st_size == size + len(written):
                with suppress(PermissionError):
                    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        finally:
            os.close(file)


def sound_entries(path: Path, session_id: str) -> Iterator[Entry]:
    """The entries of a transcript, up to the first damage."""
    with suppress(DamagedSession, SessionError):
        yield from TranscriptReader(path, session_id).entries()


def list_agents(session_path: Path) -> list[AgentInfo]:
    """The subagents of a session that have a transcript."""
    found = sorted((session_path.with_suffix("") / "subagents").glob("agent-*.jsonl"))
    return [AgentInfo(id=path.stem.removeprefix("agent-"), meta=read_meta(path)) for path in found]


def read_meta(path: Path) -> Json:
    """The content of the sidecar file; {} if it cannot be read."""
    try:
        data = private_files.read(path.with_suffix(".meta.json"), below=AGENT_BELOW)
        return msgspec.json.decode(data, type=Json)
    except (OSError, msgspec.DecodeError):
        return {}
