"""Find and load settings files.

    managed   /etc/claude-code/managed-settings.json, and --managed-settings
    flag      --settings, a file or inline JSON
    local     .claude/settings.local.json in the project
    project   .claude/settings.json in the project
    user      settings.json in the config directory

An invalid file of the last three is reported and skipped. Invalid settings on the command line or in
the managed file are fatal.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from parley.errors import SessionError, UsageError
from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import SettingsLayer, SettingsProblem, Source
from parley.settings.safe_read import HOST_TREE, FileTree

MANAGED_FILE = Path("/etc/claude-code/managed-settings.json")
AMBIENT: tuple[Source, ...] = ("local", "project", "user")
UNSAFE = "is not used: it and its folder must be owned by root or by you, and must not be writable by others"
LOSS = "the file is ignored, and any deny or ask rules in it are not enforced"


class SourceSelection(Struct, frozen=True, kw_only=True):
    """Which settings to load."""

    config: Path
    project: str
    """The folder whose `.claude` is used."""
    given: str | None = None
    managed: str | None = None
    sources: tuple[str, ...] | None = None
    """From user, project and local; None means all of them."""
    bare: bool = False
    managed_hooks_only: bool = False
    """Whether only hooks of managed settings are used."""
    managed_file: Path = MANAGED_FILE
    user_file: Path | None = None
    """Claude Code's `.claude.json`, which declares MCP servers; None to leave it out."""
    tree: FileTree = HOST_TREE
    """Where the project is: on this machine, or in a remote workspace."""

    def includes(self, source: str) -> bool:
        return not self.bare and (self.sources is None or source in self.sources)


class LoadedLayers(Struct, frozen=True, kw_only=True):
    """The layers, and the problems of files that were skipped."""

    layers: tuple[SettingsLayer, ...]
    """Highest precedence first."""
    problems: tuple[SettingsProblem, ...] = ()


def config_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of sessions and settings, which CLAUDE_CONFIG_DIR relocates."""
    if given := environment.get("CLAUDE_CONFIG_DIR"):
        return Path(given)
    return home(environment) / ".claude"


def user_file(environment: Mapping[str, str]) -> Path:
    """Return Claude Code's own file, which is beside the default config folder, or in the one that was chosen."""
    given = environment.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else home(environment)) / ".claude.json"


def home(environment: Mapping[str, str]) -> Path:
    """Raises SessionError if HOME is not set and the user has no entry in the password database."""
    try:
        return Path(environment.get("HOME") or "~").expanduser()
    except RuntimeError:
        raise SessionError("no home folder for sessions and settings was found; set HOME") from None


def load_layers(selection: SourceSelection) -> LoadedLayers:
    """Load all selected layers that exist. Raises UsageError."""
    sources = selection.sources
    if unknown := [source for source in sources or () if source not in AMBIENT]:
        raise UsageError(
            f"option '--setting-sources': unknown source {unknown[0]!r} (choose from {', '.join(reversed(AMBIENT))})"
        )
    problems: list[SettingsProblem] = []
    managed = load_managed_file(selection.managed_file, problems)
    given = parse_given("managed", "--managed-settings", selection.managed, selection.project)
    layers = [
        managed,
        given if managed is None or given is None else limit_given_policy(managed, given, problems),
        parse_given("flag", "--settings", selection.given, selection.project),
        *(load_file_layer(selection, source, problems) for source in AMBIENT if selection.includes(source)),
    ]
    return LoadedLayers(layers=tuple(layer for layer in layers if layer is not None), problems=tuple(problems))


def limit_given_policy(
    managed: SettingsLayer, given: SettingsLayer, problems: list[SettingsProblem]
) -> SettingsLayer | None:
    """What `--managed-settings` may add to the administrator's file: nothing, or what restricts if the file says so."""
    if managed.values.get("parentSettingsBehavior") != "merge":
        text = f"ignored, because {managed.path} exists and does not set parentSettingsBehavior to 'merge'"
        problems.append(SettingsProblem(path=given.path, text=text))
        return None
    kept = keep_addable(given.values, "")
    if isinstance(permissions := kept.get("permissions"), dict):
        kept["permissions"] = keep_addable(permissions, "permissions.")
    return structs.replace(given, values=kept)


def keep_addable(values: Json, prefix: str) -> Json:
    from parley.settings.keys import find_key  # most sessions have no administrator's settings

    return {key: value for key, value in values.items() if (row := find_key(prefix, key)) is not None and row.addable}


def load_file_layer(
    selection: SourceSelection, source: Source, problems: list[SettingsProblem]
) -> SettingsLayer | None:
    """Load a file if it exists; a problem is added to the list."""
    names = {"local": "settings.local.json", "project": "settings.json"}
    path = Path(selection.project, ".claude", names[source]) if source in names else selection.config / "settings.json"
    tree = HOST_TREE if source == "user" else selection.tree
    if source == "project" and not tree.is_remote and path.parent.resolve() == selection.config.resolve():
        return None  # in the home folder, this is the user's file
    beneath = None if source == "user" else (selection.project,)
    try:
        data = tree.read_file(path, beneath).data
        values = safe_read.parse_json_object(data)
    except safe_read.MissingFile:
        return None
    except safe_read.UnreadableFile as exc:
        problems.append(SettingsProblem(path=str(path), text=f"{exc}; {LOSS}", line=exc.line))
        return None
    root = str(selection.config) if source == "user" else selection.project
    return SettingsLayer(source=source, path=str(path), root=root, values=values, text=data)


def load_managed_file(path: Path, problems: list[SettingsProblem]) -> SettingsLayer | None:
    """Load the administrator's file. Raises UsageError if it is invalid, because its policy must not be skipped."""
    try:
        found = safe_read.read_file(path)
        if not is_safe(found.status) or not is_safe(path.parent.stat()):
            problems.append(SettingsProblem(path=str(path), text=UNSAFE))
            return None
        values = safe_read.parse_json_object(found.data)
    except safe_read.MissingFile:
        return None
    except safe_read.UnreadableFile as exc:
        raise UsageError(str(SettingsProblem(path=str(path), text=str(exc), line=exc.line))) from None
    return SettingsLayer(source="managed", path=str(path), root=str(path.parent), values=values, text=found.data)


def is_safe(status: os.stat_result) -> bool:
    """Whether only root and the current user can write a file."""
    return status.st_uid in (0, os.getuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def parse_given(source: Source, flag: str, text: str | None, project: str) -> SettingsLayer | None:
    """Parse a flag that is inline JSON or the path of a file. Raises UsageError."""
    if not text:
        return None
    inline = text.lstrip().startswith("{")
    path = flag if inline else text
    try:
        data = text.encode("utf-8", "surrogateescape") if inline else read_given_file(path, source)
        values = safe_read.parse_json_object(data)
    except OSError as exc:
        raise UsageError(f"cannot read the settings file {path}: {exc.strerror}") from None
    except safe_read.UnreadableFile as exc:
        raise UsageError(str(SettingsProblem(path=path, text=str(exc), line=exc.line))) from None
    return SettingsLayer(source=source, path=path, root=project, values=values, text=data)


def read_given_file(path: str, source: Source) -> bytes:
    """Read a file that the user names, which may be a pipe of the shell. Raises OSError, UnreadableFile."""
    with open(path, "rb") as opened:
        if source == "managed" and not is_safe(os.fstat(opened.fileno())):
            raise safe_read.UnreadableFile(UNSAFE)
        data = opened.read(safe_read.MOST_BYTES + 1)
    if len(data) > safe_read.MOST_BYTES:
        raise safe_read.UnreadableFile(f"is larger than the limit of {safe_read.MOST_BYTES:,} bytes")
    return data
