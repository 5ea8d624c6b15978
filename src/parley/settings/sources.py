"""Where settings are, and reading them.

    managed   /etc/claude-code/managed-settings.json, and --managed-settings
    flag      --settings, a file or inline JSON
    local     .claude/settings.local.json in the project
    project   .claude/settings.json in the project
    user      settings.json in the config folder

A file of the last three that cannot be used is reported and left out; the others hold.
What the command line names, and what an administrator wrote, must be right.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from parley.errors import SessionError, UsageError
from parley.protocol.base import Struct
from parley.settings import safe_read
from parley.settings.base import Flaw, Layer, Source

MANAGED_FILE = Path("/etc/claude-code/managed-settings.json")
AMBIENT: tuple[Source, ...] = ("local", "project", "user")
UNSAFE = "is not used: it and its folder must belong to root or to you, and nobody else may write there"
LOSS = "nothing in it counts, and if it has deny or ask rules, they do not hold"


class Wanted(Struct, frozen=True, kw_only=True):
    """What to read."""

    config: Path
    project: str
    """The folder whose `.claude` counts."""
    given: str | None = None
    managed: str | None = None
    sources: tuple[str, ...] | None = None
    """Of user, project and local; None is all of them."""
    bare: bool = False
    managed_hooks_only: bool = False
    """Whether hooks count only where an administrator wrote them."""
    managed_file: Path = MANAGED_FILE

    def wants(self, source: str) -> bool:
        return not self.bare and (self.sources is None or source in self.sources)


class Read(Struct, frozen=True, kw_only=True):
    layers: tuple[Layer, ...]
    """The strongest first."""
    flaws: tuple[Flaw, ...] = ()


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where sessions and settings live: one variable relocates everything."""
    if given := environment.get("CLAUDE_CONFIG_DIR"):
        return Path(given)
    return home(environment) / ".claude"


def home(environment: Mapping[str, str]) -> Path:
    """Raises SessionError for a user whom nobody knows."""
    try:
        return Path(environment.get("HOME") or "~").expanduser()
    except RuntimeError:
        raise SessionError("there is no home folder to keep sessions and settings in: set HOME") from None


def read(wanted: Wanted) -> Read:
    """All layers that are wanted and there. Raises UsageError."""
    check_sources(wanted.sources)
    flaws: list[Flaw] = []
    layers = [
        managed_file(wanted.managed_file, flaws),
        given("managed", "--managed-settings", wanted.managed, wanted.project),
        given("flag", "--settings", wanted.given, wanted.project),
        *(ambient(wanted, source, flaws) for source in AMBIENT if wanted.wants(source)),
    ]
    return Read(layers=tuple(layer for layer in layers if layer is not None), flaws=tuple(flaws))


def check_sources(sources: tuple[str, ...] | None) -> None:
    if strange := [source for source in sources or () if source not in AMBIENT]:
        raise UsageError(
            f"option '--setting-sources': there is no source {strange[0]!r}; there are {', '.join(reversed(AMBIENT))}"
        )


def path_of(config: Path, project: str, source: Source) -> Path:
    """The file of a layer that is not on the command line."""
    names = {"local": "settings.local.json", "project": "settings.json"}
    return Path(project, ".claude", names[source]) if source in names else config / "settings.json"


def ambient(wanted: Wanted, source: Source, flaws: list[Flaw]) -> Layer | None:
    """A file that is read if it is there; a flaw of it is noted."""
    path = path_of(wanted.config, wanted.project, source)
    if source == "project" and path.parent.resolve() == wanted.config.resolve():
        return None  # in the home folder the person's file has the project's name
    beneath = None if source == "user" else (wanted.project,)
    try:
        data = safe_read.read(path, beneath).data
        values = safe_read.json_object(data)
    except safe_read.Absent:
        return None
    except safe_read.Unfit as flaw:
        flaws.append(Flaw(path=str(path), text=f"{flaw}; {LOSS}", line=flaw.line))
        return None
    root = str(wanted.config) if source == "user" else wanted.project
    return Layer(source=source, path=str(path), root=root, values=values, text=data)


def managed_file(path: Path, flaws: list[Flaw]) -> Layer | None:
    """The administrator's file. Raises UsageError if it is broken: nobody works past a policy that was meant to be."""
    try:
        found = safe_read.read(path)
        if not is_safe(found.status) or not is_safe(path.parent.stat()):
            flaws.append(Flaw(path=str(path), text=UNSAFE))
            return None
        values = safe_read.json_object(found.data)
    except safe_read.Absent:
        return None
    except safe_read.Unfit as flaw:
        raise UsageError(str(Flaw(path=str(path), text=str(flaw), line=flaw.line))) from None
    return Layer(source="managed", path=str(path), root=str(path.parent), values=values, text=found.data)


def is_safe(status: os.stat_result) -> bool:
    """Whether only root and we could have written a file."""
    return status.st_uid in (0, os.getuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def given(source: Source, flag: str, text: str | None, project: str) -> Layer | None:
    """What a flag says: inline JSON, or the name of a file. Raises UsageError."""
    if not text:
        return None
    inline = text.lstrip().startswith("{")
    path = flag if inline else text
    try:
        data = text.encode("utf-8", "surrogateescape") if inline else given_file(path, source)
        values = safe_read.json_object(data)
    except OSError as flaw:
        raise UsageError(f"the settings file {path} cannot be read: {flaw.strerror}") from None
    except safe_read.Unfit as flaw:
        raise UsageError(str(Flaw(path=path, text=str(flaw), line=flaw.line))) from None
    return Layer(source=source, path=path, root=project, values=values, text=data)


def given_file(path: str, source: Source) -> bytes:
    """The person names it, so it may be a pipe of their shell. Raises OSError and Unfit."""
    with open(path, "rb") as opened:
        if source == "managed" and not is_safe(os.fstat(opened.fileno())):
            raise safe_read.Unfit(UNSAFE)
        data = opened.read(safe_read.MOST_BYTES + 1)
    if len(data) > safe_read.MOST_BYTES:
        raise safe_read.Unfit(f"has more than {safe_read.MOST_BYTES:,} bytes")
    return data
