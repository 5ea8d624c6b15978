"""Which folders the person trusts, on record in `trust.json` of the config folder.

A folder is known by its canonical path together with its device, its inode and the time it was made: another folder
at the same path, even one that was given the same inode, or a name that a repository's files lead to, is not it. Where
the file system does not record that time, `born` is null, and the other three must do.

A trusted folder is trusted with what its files said then: `covers` has the digests. Beside whole folders, single
settings are on record that the person agreed to when they were asked.

    {"folders": {"/home/me/project": {"device": 1, "inode": 2, "born": 3, "trusted": true, "covers": ["ab…"],
                                      "consents": []}}}

A record without `covers` was written by an older version, and vouches for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import Flaw, NotWritten, Trust
from parley.settings.sources import UNSAFE, is_safe

NAME = "trust.json"
FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class Identity(Struct, frozen=True):
    """One folder, and no other."""

    path: str
    device: int
    inode: int
    born: int | None
    """In nanoseconds since 1970; None where that is not known."""


class Record(Struct, frozen=True, kw_only=True):
    device: int
    inode: int
    born: int | None = None
    trusted: bool = False
    covers: tuple[str, ...] | None = None
    """Digests of what the folder is trusted with; None in the record of an older version."""
    consents: tuple[str, ...] = ()

    def is_of(self, identity: Identity) -> bool:
        same = (self.device, self.inode, self.born) == (identity.device, identity.inode, identity.born)
        return same and self.covers is not None


class Book(Struct, frozen=True, kw_only=True):
    """All that is on record."""

    folders: dict[str, Record] = {}
    flaw: Flaw | None = None

    def of(self, identity: Identity) -> Record:
        found = self.folders.get(identity.path)
        if found is None or not found.is_of(identity):
            return Record(device=identity.device, inode=identity.inode, born=identity.born, covers=())
        return found


def identify(folder: Path | str) -> Identity:
    """Raises UsageError if it is no folder we can open."""
    with opened(folder) as (descriptor, path):
        return identity(descriptor, path)


def identity(descriptor: int, path: str) -> Identity:
    from parley.workspace.syscalls import birth_time_ns

    status = os.fstat(descriptor)
    return Identity(path, status.st_dev, status.st_ino, birth_time_ns(descriptor))


@contextmanager
def opened(folder: Path | str) -> Iterator[tuple[int, str]]:
    """A folder and its real path. Raises UsageError."""
    try:
        descriptor = os.open(folder, FOLDER)
    except (OSError, ValueError) as flaw:
        raise UsageError(f"{folder} is no folder that can be opened: {safe_read.reason(flaw)}") from None
    try:
        yield descriptor, safe_read.real_path(descriptor, folder)
    finally:
        os.close(descriptor)


def read(config: Path) -> Book:
    """What is on record. A file that is broken or not safely ours vouches for nobody."""
    path = config / NAME
    try:
        found = safe_read.read(path, beneath=(str(config),))
        if not is_safe(found.status):
            raise safe_read.Unfit(UNSAFE)
        return book(found.data)
    except safe_read.Absent:
        return Book()
    except safe_read.Unfit as flaw:
        return Book(flaw=Flaw(path=str(path), text=f"{flaw}; no folder is trusted", line=flaw.line))


def book(data: bytes) -> Book:
    """Raises Unfit."""
    folders: Any = safe_read.json_object(data).get("folders", {})
    try:
        return Book(folders=msgspec.convert(folders, dict[str, Record]))
    except msgspec.ValidationError as flaw:
        raise safe_read.Unfit(f"is wrong: {flaw}") from None


def judge(config: Path, project: str, sources: tuple[str, ...] | None) -> tuple[Trust, Flaw | None]:
    """What of a project may act. Whoever names a source of the tree on the command line trusts it."""
    named = frozenset(sources or ()) & {"project", "local"}
    known = read(config)
    nothing = Trust(sources=named)
    try:
        with opened(project) as (descriptor, path):
            found = known.folders.get(path)
            if found is None:
                return nothing, known.flaw
            # Only now: the call for the birth time takes some milliseconds to load.
            is_same = found.is_of(identity(descriptor, path))
    except UsageError:
        return nothing, known.flaw
    if not is_same:
        return nothing, Flaw(path=str(config / NAME), text=f"{why_not(found, path)}; `parley trust {path}` trusts it")
    consents = frozenset(found.consents)
    if not found.trusted:
        return Trust(sources=named, consents=consents), known.flaw
    covered = frozenset(found.covers or ())
    return Trust(sources=frozenset({"project", "local"}), consents=consents, covered=covered, named=named), known.flaw


def why_not(found: Record, path: str) -> str:
    """Why a record does not vouch for the folder that is there now."""
    if found.covers is None:
        return f"the record of {path} is of an older version, which did not note when it was made nor what it said"
    return f"{path} is another folder than the one on record, in the same place"


def record(config: Path, identity: Identity, trusted: bool, covers: Iterable[str] = ()) -> None:
    """Trust a folder with what has these digests, or trust it no more. Raises NotWritten."""
    new = Record(
        device=identity.device,
        inode=identity.inode,
        born=identity.born,
        trusted=trusted,
        covers=tuple(dict.fromkeys(covers)),
    )
    change(config, identity, lambda old: new)


def consent(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Put single settings on record. Raises NotWritten."""
    new = tuple(entries)
    change(config, identity, lambda old: with_consents(old, dict.fromkeys(old.consents + new)))


def withdraw(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Take single settings off the record. Raises NotWritten."""
    gone = set(entries)
    if gone & set(read(config).of(identity).consents):
        change(config, identity, lambda old: with_consents(old, (kept for kept in old.consents if kept not in gone)))


def with_consents(record: Record, entries: Iterable[str]) -> Record:
    return msgspec.structs.replace(record, consents=tuple(entries))


def change(config: Path, identity: Identity, make: Callable[[Record], Record]) -> None:
    from parley.settings.safe_folder import opened

    with opened(config) as folder, folder.locked():
        known = read(config)
        if known.flaw is not None:
            raise NotWritten(str(known.flaw))
        folders: dict[str, Json] = {path: plain(kept) for path, kept in known.folders.items()}
        new = make(known.of(identity))
        folders[identity.path] = plain(new)
        if not new.trusted and not new.consents:
            del folders[identity.path]
        data = msgspec.json.format(msgspec.json.encode({"folders": folders}), indent=2)
        folder.replace(NAME, data + b"\n")


def plain(record: Record) -> Json:
    return msgspec.structs.asdict(record)
