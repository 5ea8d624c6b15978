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
from parley.settings.base import ProjectTrust, SettingsProblem, SettingsWriteError
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


class TrustRecord(Struct, frozen=True, kw_only=True):
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


class TrustFile(Struct, frozen=True, kw_only=True):
    """All that is on record."""

    folders: dict[str, TrustRecord] = {}
    problem: SettingsProblem | None = None

    def find(self, identity: Identity) -> TrustRecord:
        found = self.folders.get(identity.path)
        if found is None or not found.is_of(identity):
            return TrustRecord(device=identity.device, inode=identity.inode, born=identity.born, covers=())
        return found


def identify(folder: Path | str) -> Identity:
    """Raises UsageError if it is no folder we can open."""
    with open_folder(folder) as (descriptor, path):
        return identity(descriptor, path)


def identity(descriptor: int, path: str) -> Identity:
    from parley.workspace.syscalls import birth_time_ns

    status = os.fstat(descriptor)
    return Identity(path, status.st_dev, status.st_ino, birth_time_ns(descriptor))


@contextmanager
def open_folder(folder: Path | str) -> Iterator[tuple[int, str]]:
    """A folder and its real path. Raises UsageError."""
    try:
        descriptor = os.open(folder, FOLDER)
    except (OSError, ValueError) as exc:
        raise UsageError(f"{folder} is no folder that can be opened: {safe_read.describe_error(exc)}") from None
    try:
        yield descriptor, safe_read.real_path(descriptor, folder)
    finally:
        os.close(descriptor)


def read_trust_file(config: Path) -> TrustFile:
    """What is on record. A file that is broken or not safely ours vouches for nobody."""
    path = config / NAME
    try:
        found = safe_read.read_file(path, beneath=(str(config),))
        if not is_safe(found.status):
            raise safe_read.UnreadableFile(UNSAFE)
        return parse_trust_file(found.data)
    except safe_read.MissingFile:
        return TrustFile()
    except safe_read.UnreadableFile as exc:
        return TrustFile(problem=SettingsProblem(path=str(path), text=f"{exc}; no folder is trusted", line=exc.line))


def parse_trust_file(data: bytes) -> TrustFile:
    """Raises Unfit."""
    folders: Any = safe_read.parse_json_object(data).get("folders", {})
    try:
        return TrustFile(folders=msgspec.convert(folders, dict[str, TrustRecord]))
    except msgspec.ValidationError as exc:
        raise safe_read.UnreadableFile(f"is wrong: {exc}") from None


def evaluate(
    config: Path, project: str, sources: tuple[str, ...] | None
) -> tuple[ProjectTrust, SettingsProblem | None]:
    """What of a project may act. Whoever names a source of the tree on the command line trusts it."""
    named = frozenset(sources or ()) & {"project", "local"}
    known = read_trust_file(config)
    nothing = ProjectTrust(sources=named)
    try:
        with open_folder(project) as (descriptor, path):
            found = known.folders.get(path)
            if found is None:
                return nothing, known.problem
            # Only now: the call for the birth time takes some milliseconds to load.
            is_same = found.is_of(identity(descriptor, path))
    except UsageError:
        return nothing, known.problem
    if not is_same:
        return nothing, SettingsProblem(
            path=str(config / NAME), text=f"{mismatch_reason(found, path)}; `parley trust {path}` trusts it"
        )
    consents = frozenset(found.consents)
    if not found.trusted:
        return ProjectTrust(sources=named, consents=consents), known.problem
    covered = frozenset(found.covers or ())
    return ProjectTrust(
        sources=frozenset({"project", "local"}), consents=consents, covered=covered, named=named
    ), known.problem


def mismatch_reason(found: TrustRecord, path: str) -> str:
    """Why a record does not vouch for the folder that is there now."""
    if found.covers is None:
        return f"the record of {path} is of an older version, which did not note when it was made nor what it said"
    return f"{path} is another folder than the one on record, in the same place"


def record_trust(config: Path, identity: Identity, trusted: bool, covers: Iterable[str] = ()) -> None:
    """Trust a folder with what has these digests, or trust it no more. Raises NotWritten."""
    new = TrustRecord(
        device=identity.device,
        inode=identity.inode,
        born=identity.born,
        trusted=trusted,
        covers=tuple(dict.fromkeys(covers)),
    )
    update_record(config, identity, lambda old: new)


def record_consent(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Put single settings on record. Raises NotWritten."""
    new = tuple(entries)
    update_record(config, identity, lambda old: replace_consents(old, dict.fromkeys(old.consents + new)))


def withdraw_consent(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Take single settings off the record. Raises NotWritten."""
    gone = set(entries)
    if gone & set(read_trust_file(config).find(identity).consents):
        update_record(
            config, identity, lambda old: replace_consents(old, (kept for kept in old.consents if kept not in gone))
        )


def replace_consents(record: TrustRecord, entries: Iterable[str]) -> TrustRecord:
    return msgspec.structs.replace(record, consents=tuple(entries))


def update_record(config: Path, identity: Identity, make: Callable[[TrustRecord], TrustRecord]) -> None:
    from parley.settings.safe_folder import open_folder

    with open_folder(config) as folder, folder.lock():
        known = read_trust_file(config)
        if known.problem is not None:
            raise SettingsWriteError(str(known.problem))
        folders: dict[str, Json] = {path: record_to_json(kept) for path, kept in known.folders.items()}
        new = make(known.find(identity))
        folders[identity.path] = record_to_json(new)
        if not new.trusted and not new.consents:
            del folders[identity.path]
        data = msgspec.json.format(msgspec.json.encode({"folders": folders}), indent=2)
        folder.replace(NAME, data + b"\n")


def record_to_json(record: TrustRecord) -> Json:
    return msgspec.structs.asdict(record)
