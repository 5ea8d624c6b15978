"""The folders that the user trusts, recorded in `trust.json` of the config directory.

A folder is identified by its real path, device, inode and creation time. Another folder at the same path does not
inherit the trust, even if it has the same inode. If the file system does not record the creation time, `born` is null
and the other three are compared.

The trust covers only what the folder's files contained at that time: `covers` has the digests. In addition to whole
folders, `consents` records single settings that the user agreed to.

    {"folders": {"/home/me/project": {"device": 1, "inode": 2, "born": 3, "trusted": true, "covers": ["ab…"],
                                      "consents": []}}}

A record without `covers` was written by an older version and has no effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.settings import safe_read
from parley.settings.base import ProjectTrust, SettingsProblem, SettingsWriteError, digest
from parley.settings.sources import UNSAFE, is_safe
from parley.workspace.syscalls import birth_time_ns

NAME = "trust.json"
FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class Identity(Struct, frozen=True):
    """What identifies a folder."""

    path: str
    device: int
    inode: int
    born: int | None
    """Creation time in nanoseconds since 1970; None if unknown."""


class TrustRecord(Struct, frozen=True, kw_only=True):
    """The entry of one folder."""

    device: int
    inode: int
    born: int | None = None
    trusted: bool = False
    covers: tuple[str, ...] | None = None
    """Digests of the trusted entries; None in the record of an older version."""
    consents: tuple[str, ...] = ()

    def is_of(self, identity: Identity) -> bool:
        same = (self.device, self.inode, self.born) == (identity.device, identity.inode, identity.born)
        return same and self.covers is not None


class TrustFile(Struct, frozen=True, kw_only=True):
    """The content of `trust.json`."""

    folders: dict[str, TrustRecord] = {}
    problem: SettingsProblem | None = None

    def find(self, identity: Identity) -> TrustRecord:
        found = self.folders.get(identity.path)
        if found is None or not found.is_of(identity):
            return TrustRecord(device=identity.device, inode=identity.inode, born=identity.born, covers=())
        return found


def identify(folder: Path | str) -> Identity:
    """Raises UsageError if the folder cannot be opened."""
    with open_folder(folder) as (descriptor, path):
        return identity(descriptor, path)


def identity(descriptor: int, path: str) -> Identity:
    status = os.fstat(descriptor)
    return Identity(path, status.st_dev, status.st_ino, birth_time_ns(descriptor))


@contextmanager
def open_folder(folder: Path | str) -> Iterator[tuple[int, str]]:
    """Open a folder; yields its descriptor and real path. Raises UsageError."""
    try:
        descriptor = os.open(folder, FOLDER)
    except (OSError, ValueError) as exc:
        raise UsageError(f"cannot open the folder {folder}: {safe_read.describe_error(exc)}") from None
    try:
        yield descriptor, safe_read.real_path(descriptor, folder)
    finally:
        os.close(descriptor)


def read_trust_file(config: Path) -> TrustFile:
    """Read `trust.json`. If it is invalid or writable by others, no folder is trusted."""
    path = config / NAME
    try:
        found = safe_read.read_file(path, beneath=(str(config),))
        if not is_safe(found.status):
            raise safe_read.UnreadableFile(UNSAFE)
        data = found.data
        folders: Any = safe_read.parse_json_object(data).get("folders", {})
        try:
            return TrustFile(folders=msgspec.convert(folders, dict[str, TrustRecord]))
        except msgspec.ValidationError as exc:
            raise safe_read.UnreadableFile(f"is invalid: {exc}") from None
    except safe_read.MissingFile:
        return TrustFile()
    except safe_read.UnreadableFile as exc:
        return TrustFile(problem=SettingsProblem(path=str(path), text=f"{exc}; no folder is trusted", line=exc.line))


def evaluate(
    config: Path, project: str, sources: tuple[str, ...] | None, *, is_remote: bool = False
) -> tuple[ProjectTrust, SettingsProblem | None]:
    """Return the trust in a project, and a problem. A source named in --setting-sources is trusted.

    What is recorded of a folder of this machine does not apply to a remote one with the same path.
    """
    named = frozenset(sources or ()) & {"project", "local"}
    nothing = ProjectTrust(sources=named)
    if is_remote:
        return nothing, None
    known = read_trust_file(config)
    try:
        with open_folder(project) as (descriptor, path):
            found = known.folders.get(path)
            if found is None:
                return nothing, known.problem
            # Not earlier: importing the call for the creation time takes some milliseconds.
            is_same = found.is_of(identity(descriptor, path))
    except UsageError:
        return nothing, known.problem
    if not is_same:
        return nothing, SettingsProblem(
            path=str(config / NAME), text=f"{mismatch_reason(found, path)}; to trust it, run `parley trust {path}`"
        )
    consents = frozenset(found.consents)
    if not found.trusted:
        return ProjectTrust(sources=named, consents=consents), known.problem
    covered = frozenset(found.covers or ())
    return ProjectTrust(
        sources=frozenset({"project", "local"}), consents=consents, covered=covered, named=named
    ), known.problem


def mismatch_reason(found: TrustRecord, path: str) -> str:
    """Return why a record does not apply to the folder that is there now."""
    if found.covers is None:
        return f"{path} was trusted by an older version, which did not record its creation time and content"
    return f"{path} is not the folder that was trusted, but another one at the same path"


def record_trust(config: Path, identity: Identity, trusted: bool, covers: Iterable[str] = ()) -> None:
    """Record that a folder is trusted with the entries of these digests, or not trusted. Raises SettingsWriteError."""
    covered = tuple(dict.fromkeys(covers))
    update_record(config, identity, lambda old: replace(old, trusted=trusted, covers=covered, consents=()))


def record_consent(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Record consent to single settings. Raises SettingsWriteError."""
    new = tuple(entries)
    update_record(config, identity, lambda old: replace(old, consents=tuple(dict.fromkeys(old.consents + new))))


def withdraw_consent(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Remove the consent to single settings. Raises SettingsWriteError."""
    removed = set(entries)
    if removed & set(read_trust_file(config).find(identity).consents):
        update_record(config, identity, lambda old: without_consents(old, removed))


def forget_entries(config: Path, identity: Identity, entries: Iterable[str]) -> None:
    """Take single entries out of what was trusted; the rest stays trusted. Raises SettingsWriteError."""
    removed = set(entries)
    digests = set(map(digest, removed))

    def forget(old: TrustRecord) -> TrustRecord:
        covers = tuple(each for each in old.covers or () if each not in digests)
        return replace(without_consents(old, removed), covers=covers)

    update_record(config, identity, forget)


def without_consents(record: TrustRecord, removed: set[str]) -> TrustRecord:
    return replace(record, consents=tuple(each for each in record.consents if each not in removed))


def update_record(config: Path, identity: Identity, make: Callable[[TrustRecord], TrustRecord]) -> None:
    from parley.settings.writer import open_folder

    with open_folder(config) as folder, folder.lock():
        known = read_trust_file(config)
        if known.problem is not None:
            raise SettingsWriteError(str(known.problem))
        folders = {**known.folders, identity.path: make(known.find(identity))}
        if not folders[identity.path].trusted and not folders[identity.path].consents:
            del folders[identity.path]
        data = msgspec.json.format(msgspec.json.encode({"folders": folders}), indent=2)
        folder.replace(NAME, data + b"\n")
