"""Which folders the person trusts, on record in `trust.json` of the config folder.

A folder is known by its canonical path together with its device and inode: another folder
at the same path, or a name that a repository's files lead to, is not it. Beside whole
folders, single settings are on record that the person agreed to when they were asked.

    {"folders": {"/home/me/project": {"device": 1, "inode": 2, "trusted": true, "consents": []}}}
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.settings import file
from parley.settings.base import Flaw, NotWritten, Trust
from parley.settings.layers import UNSAFE, is_safe

NAME = "trust.json"
FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class Identity(Struct, frozen=True):
    """One folder, and no other."""

    path: str
    device: int
    inode: int


class Record(Struct, frozen=True, kw_only=True):
    device: int
    inode: int
    trusted: bool = False
    consents: tuple[str, ...] = ()


class Book(Struct, frozen=True, kw_only=True):
    """All that is on record."""

    folders: dict[str, Record] = {}
    flaw: Flaw | None = None

    def of(self, identity: Identity) -> Record:
        found = self.folders.get(identity.path)
        if found is None or (found.device, found.inode) != (identity.device, identity.inode):
            return Record(device=identity.device, inode=identity.inode)
        return found


def identify(folder: Path | str) -> Identity:
    """Raises UsageError if it is no folder we can open."""
    try:
        descriptor = os.open(folder, FOLDER)
    except (OSError, ValueError) as flaw:
        raise UsageError(f"{folder} is no folder that can be opened: {file.reason(flaw)}") from None
    try:
        status = os.fstat(descriptor)
        return Identity(file.real_path(descriptor, folder), status.st_dev, status.st_ino)
    finally:
        os.close(descriptor)


def read(config: Path) -> Book:
    """What is on record. A file that is broken or not safely ours vouches for nobody."""
    path = config / NAME
    try:
        found = file.read(path, beneath=(str(config),))
        if not is_safe(found.status):
            raise file.Unfit(UNSAFE)
        return book(found.data)
    except file.Absent:
        return Book()
    except file.Unfit as flaw:
        return Book(flaw=Flaw(path=str(path), text=f"{flaw}; no folder is trusted", line=flaw.line))


def book(data: bytes) -> Book:
    """Raises Unfit."""
    folders: Any = file.json_object(data).get("folders", {})
    try:
        return Book(folders=msgspec.convert(folders, dict[str, Record]))
    except msgspec.ValidationError as flaw:
        raise file.Unfit(f"is wrong: {flaw}") from None


def judge(config: Path, project: str, sources: tuple[str, ...] | None) -> tuple[Trust, Flaw | None]:
    """What of a project may act. Whoever names a source of the tree on the command line trusts it."""
    named = frozenset(sources or ()) & {"project", "local"}
    known = read(config)
    try:
        record = known.of(identify(project))
    except UsageError:
        return Trust(sources=named), known.flaw
    everything = frozenset({"project", "local"}) if record.trusted else named
    return Trust(sources=everything, consents=frozenset(record.consents)), known.flaw


def record(config: Path, identity: Identity, trusted: bool) -> None:
    """Trust a folder, or trust it no more. Raises NotWritten."""
    change(config, identity, lambda old: Record(device=old.device, inode=old.inode, trusted=trusted))


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
    from parley.settings.folder import opened

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
