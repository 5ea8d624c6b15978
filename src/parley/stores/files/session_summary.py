"""Transcript files at a glance: what a list says of them, without reading them from end to end.

Titles and tags are lines of their own, as the session functions of the official SDKs write
and read them; the last one counts. They are looked for in the first and the last 64 KiB.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import DamagedSession, SessionError
from parley.protocol.base import Json, spell
from parley.stores.base import Hit, Info
from parley.stores.files.title_tags import REACH
from parley.stores.files.transcript import BELOW, Reader
from parley.stores.search_text import first_prompt, hit, words
from parley.workspace import private_files

TITLES = ((b"custom-title", "customTitle"), (b"ai-title", "aiTitle"))
LINES_FOR_BRANCH = 8


def by_age(files: Iterable[Path], complain: Callable[[str], None]) -> list[Path]:
    """The files, those written last first. What we would not open is left out, and complained about."""
    aged: list[tuple[int, Path]] = []
    owners: dict[Path, int | None] = {}
    for file in files:
        try:
            if file.parent not in owners:
                owners[file.parent] = None
                with private_files.opened_folder(file.parent, below=BELOW) as (_, owner):
                    owners[file.parent] = owner
            if (owner_of_root := owners[file.parent]) is not None:
                status = os.stat(file, follow_symlinks=False)
                private_files.check(status, file, owner_of_root, writes=False)
                aged.append((status.st_mtime_ns, file))
        except private_files.Unsafe as exc:
            complain(f"sessions are left out: {exc.strerror}")
        except OSError:
            continue  # it was deleted just now
    return [file for _, file in sorted(aged, key=lambda pair: pair[0], reverse=True)]


def listed(files: Iterable[tuple[str, Path]], limit: int | None, offset: int) -> list[Info]:
    found: list[Info] = []
    for session_id, path in files:
        if limit is not None and len(found) >= offset + limit:
            break
        info = glance(path, session_id)
        if info is not None:
            found.append(info)
    return found[offset:]


def glance(path: Path, session_id: str) -> Info | None:
    """What a list says of a transcript; None if there is none, or nobody's conversation in it."""
    try:
        file = private_files.open_file(path, os.O_RDONLY, below=BELOW)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        head = os.pread(file, REACH, 0)
        tail = os.pread(file, REACH, status.st_size - REACH) if status.st_size > REACH else head
    except OSError:
        return None
    finally:
        os.close(file)
    if not head or b'"isSidechain":true' in head[: head.find(b"\n")]:
        return None
    first, prompt = beginning(head)
    return Info(
        id=session_id,
        cwd=text(first.get("cwd")) or "",
        title=title(tail) or title(head),
        first_prompt=prompt,
        created=text(first.get("timestamp")) or utc(status.st_mtime),
        modified=utc(status.st_mtime),
        size_bytes=status.st_size,
        tag=text((last(tail, b"tag") or last(head, b"tag") or {}).get("tag")),
        git_branch=branch(tail) or text(first.get("gitBranch")),
    )


def beginning(head: bytes) -> tuple[Json, str | None]:
    """The first line that says where it was written, and the first thing a person asked for."""
    first: Json = {}
    for line in head.split(b"\n"):
        if not line:
            continue
        spelled = decoded(line)
        if "cwd" in spelled:
            first = first or spelled
            prompt = first_prompt(str(spelled.get("type")), spelled)
            if prompt is not None:
                return first, prompt
    return first, None


def title(part: bytes) -> str | None:
    for kind, field in TITLES:
        if found := text((last(part, kind) or {}).get(field)):
            return found
    return None


def last(part: bytes, kind: bytes) -> Json | None:
    """The last line of a type, which stands first in the line."""
    begins = b'{"type":"%b"' % kind
    at = part.rfind(b"\n" + begins) + 1
    if at == 0 and not part.startswith(begins):
        return None
    return decoded(part[at:].partition(b"\n")[0])


def branch(tail: bytes) -> str | None:
    for line in tail.rsplit(b"\n", LINES_FOR_BRANCH)[:0:-1]:
        if b'"gitBranch":"' in line:
            return text(decoded(line).get("gitBranch"))
    return None


def decoded(line: bytes) -> Json:
    """The object of a line; an empty one for what is none."""
    try:
        found: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03}Z"


def entitle(path: Path, session_id: str, title: str) -> None:
    """Raises SessionError."""
    add(path, {"type": "custom-title", "customTitle": title, "sessionId": session_id})


def label(path: Path, session_id: str, tag: str | None) -> None:
    """Raises SessionError."""
    add(path, {"type": "tag", "tag": tag or "", "sessionId": session_id})


def add(path: Path, line: Json) -> None:
    """A line that is no record of ours: whoever holds the session may write at the same time."""
    try:
        file = private_files.open_file(path, os.O_RDWR | os.O_APPEND, below=BELOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # the holder may be about to cut off what it finds torn
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            written = (b"\n" if torn else b"") + spell(line) + b"\n"
            if os.write(file, written) != len(written):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
    except OSError as flaw:
        raise SessionError(f"the session cannot be written to {path}: {flaw.strerror}") from None


def searched(files: Iterable[tuple[str, Path]], text: str, limit: int) -> list[Hit]:
    wanted = words(text)
    found: list[Hit] = []
    for session_id, path in files:
        if len(found) >= limit:
            break
        found += reversed(list(hits(path, session_id, wanted)))
    return found[:limit]


def hits(path: Path, session_id: str, wanted: list[str]) -> Iterator[Hit]:
    try:
        for entry in Reader(path, session_id).entries():
            if (found := hit(session_id, entry, wanted)) is not None:
                yield found
    except (DamagedSession, SessionError):
        return  # what is before the damage was searched; `repair` is for the rest
