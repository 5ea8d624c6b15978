"""Collect declarations of MCP servers, and change the files that have them. `parley.mcp` interprets them.

    dynamic   --mcp-config, each a file or JSON, and `mcpServers` of initialize; an error is fatal
    managed, local, user, project   `mcpServers` in settings, as far as the layer takes effect
    local     .claude.json, the entry of this project
    project   .mcp.json of the project, if the folder is trusted or the user's settings approve the server
    user      .claude.json, for all projects

Highest precedence first: if two servers have the same name, the first is used. With
--strict-mcp-config, only the command line is used.

Claude Code keeps MCP servers and much else in `.claude.json`:

    ~/.claude.json, or $CLAUDE_CONFIG_DIR/.claude.json

    {"mcpServers": {...},                                        scope user: all projects
     "projects": {"/home/me/project": {"mcpServers": {...}}}}    scope local: one project

An edit of it or of `.mcp.json` changes one object, keeps the text of everything else, and is made under Claude Code's
lock (a folder beside the file) and ours. A file that is broken, or in which a key occurs twice, is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from parley.errors import UsageError
from parley.mcp.base import ServerDeclaration
from parley.protocol.base import Json, Struct, find_duplicate_key
from parley.settings import safe_read
from parley.settings.base import (
    MCP_FILE,
    TREE,
    MergedSettings,
    ProjectTrust,
    SettingsProblem,
    SettingsWriteError,
    format_entry,
    printable,
)
from parley.settings.safe_read import HOST_TREE, FileTree
from parley.settings.sources import SourceSelection
from parley.settings.writer import detect_indent, encode, open_folder, parse_object

MOST_BYTES = 64_000_000
"""As much as `session_settings.py` looks at."""


class ProjectServers(Struct, frozen=True, kw_only=True):
    """What the file says about one project, as far as it concerns MCP servers."""

    mcpServers: dict[str, Any] = {}
    disabledMcpServers: list[str] = []
    """Servers that the user switched off in this project."""
    disabledMcpjsonServers: list[str] = []
    """Servers of `.mcp.json` that the user rejected."""


class UserConfig(Struct, frozen=True, kw_only=True):
    """The parts of the file that are read. Everything else is skipped without being decoded."""

    mcpServers: dict[str, Any] = {}
    projects: dict[str, Raw] = {}

    def project(self, folders: tuple[str, ...]) -> ProjectServers:
        """The entries of these folders; the first that has a server wins. Raises UnreadableFile."""
        found = ProjectServers()
        for folder in folders:
            raw = self.projects.get(folder)
            if raw is None:
                continue
            try:
                entry = msgspec.json.decode(raw, type=ProjectServers)
            except msgspec.ValidationError as exc:
                raise safe_read.UnreadableFile(f"has an invalid entry for {folder}: {exc}") from None
            found = ProjectServers(
                mcpServers={**entry.mcpServers, **found.mcpServers},
                disabledMcpServers=[*found.disabledMcpServers, *entry.disabledMcpServers],
                disabledMcpjsonServers=[*found.disabledMcpjsonServers, *entry.disabledMcpjsonServers],
            )
        return found


def read_user_config(path: Path) -> UserConfig:
    """Raises UnreadableFile, or MissingFile."""
    data = safe_read.read_file(path, most_bytes=MOST_BYTES).data
    try:
        return msgspec.json.decode(data or b"{}", type=UserConfig)
    except msgspec.ValidationError as exc:
        raise safe_read.UnreadableFile(f"is invalid: {exc}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise safe_read.UnreadableFile(f"is not valid JSON: {exc}", safe_read.line_of_error(data, str(exc))) from None


def project_folders(cwd: str) -> tuple[str, ...]:
    """The names under which a folder may be listed: itself, and the root of its repository."""
    return tuple(dict.fromkeys((cwd, project_root(cwd))))


def project_root(cwd: str) -> str:
    """The name that Claude Code lists a folder under: the root of its repository, else the folder."""
    for folder in (Path(cwd), *Path(cwd).parents):
        if os.path.lexists(folder / ".git"):
            return str(folder)
    return cwd


LOCK_SECONDS = 12.0
STALE_SECONDS = 10.0
"""A lock that was not renewed for this long was left by a process that died."""
SERVERS = "mcpServers"
RawObject = dict[str, Raw]
"""An object whose values keep their text."""
Change = Callable[[RawObject], RawObject]


def edit_servers(path: Path, change: Change) -> None:
    """Change the object `mcpServers` of a file. Raises SettingsWriteError."""
    edit_file(path, lambda values: edit_key(values, SERVERS, str(path), change))


def edit_project_entry(path: Path, folder: str, change: Change) -> None:
    """Change the entry of one project in `.claude.json`. Raises SettingsWriteError."""

    def change_projects(projects: RawObject) -> RawObject:
        return edit_key(projects, folder, f"{path}: projects", change)

    edit_file(path, lambda values: edit_key(values, "projects", str(path), change_projects))


def edit_project_servers(path: Path, folder: str, change: Change) -> None:
    """Change the servers of one project in `.claude.json`. Raises SettingsWriteError."""
    edit_project_entry(path, folder, lambda entry: edit_key(entry, SERVERS, f"{path}: {folder}", change))


def edit_key(values: RawObject, key: str, where: str, change: Change) -> RawObject:
    """Replace one object in an object; the text of the others stays."""
    old = parse_object(values.get(key), f"{where}: {key}")
    return {**values, key: encode(change(old))}


def edit_file(path: Path, change: Change) -> None:
    """Read, change and replace a JSON file. Raises SettingsWriteError."""
    with open_folder(path.parent) as folder, folder.lock(), claude_lock(path):
        data = folder.read(path.name, MOST_BYTES)
        check_unambiguous(data, path)
        new = change(parse_object(Raw(data or b"{}"), str(path)))
        text = msgspec.json.format(msgspec.json.encode(new), indent=detect_indent(data))
        folder.replace(path.name, text + b"\n" * (data is None or data.endswith(b"\n")))


def check_unambiguous(data: bytes | None, path: Path) -> None:
    """Raises SettingsWriteError: of two values under one key, writing would lose the first."""
    if not data:
        return
    parse_object(Raw(data), str(path))
    if (duplicate := find_duplicate_key(data)) is not None:
        raise SettingsWriteError(f"{path}: {duplicate}; left unchanged")


@contextmanager
def claude_lock(path: Path) -> Iterator[None]:
    """Hold the lock that Claude Code takes: a folder `NAME.lock`, whose time says that its owner lives."""
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            os.mkdir(lock, 0o700)
            break
        except FileExistsError:
            with suppress(OSError):
                if time.time() - os.stat(lock).st_mtime > STALE_SECONDS:
                    os.rmdir(lock)
                    continue
        except OSError as exc:
            raise SettingsWriteError(f"cannot lock {path}: {exc.strerror}") from None
        if time.monotonic() > deadline:
            raise SettingsWriteError(f"{path} is locked by another process; try again")
        time.sleep(0.05)
    try:
        yield
    finally:
        with suppress(OSError):
            os.rmdir(lock)


def from_command_line(texts: Sequence[str], cwd: str) -> list[ServerDeclaration]:
    """Raises UsageError."""
    return [parse_given(text, cwd) for text in texts if text.strip()]


def parse_given(text: str, cwd: str) -> ServerDeclaration:
    inline = text.lstrip().startswith("{")
    path = "--mcp-config" if inline else text
    try:
        if inline:
            data = text.encode("utf-8", "surrogateescape")
        else:
            with open(os.path.join(cwd, text), "rb") as opened:  # the user names it, so it may be a pipe of the shell
                data = opened.read(safe_read.MOST_BYTES + 1)
        values = safe_read.parse_json_object(data)
    except OSError as exc:
        raise UsageError(f"cannot read the MCP configuration {path}: {exc.strerror}") from None
    except safe_read.UnreadableFile as exc:
        place = "" if exc.line is None else f" (line {exc.line})"
        raise UsageError(f"the MCP configuration {path} {exc}{place}") from None
    if (duplicate := find_duplicate_key(data)) is not None:
        raise UsageError(f"the MCP configuration {path}: {duplicate}")
    servers = values.get("mcpServers")
    if not isinstance(servers, dict):
        raise UsageError(f"the MCP configuration {path} must contain an object `mcpServers`")
    return ServerDeclaration(source="dynamic", path=path, servers=servers, added_by="client", may_allow=True)


def from_settings(merged: MergedSettings) -> list[ServerDeclaration]:
    return [
        ServerDeclaration(
            source="dynamic" if value.source == "flag" else value.source,
            path=printable(value.path),
            servers={name: value.value},
            by_tree=value.source in TREE,
            added_by="client" if value.source == "flag" else "",
        )
        for name, value in merged.servers.items()
    ]


def read_project_file(path: str, tree: FileTree = HOST_TREE) -> tuple[Json, bytes]:
    """The servers of `.mcp.json`, and its text. Raises UnreadableFile, or MissingFile."""
    data = tree.read_file(path, beneath=(os.path.dirname(path),)).data
    servers = safe_read.parse_json_object(data).get("mcpServers")
    if not isinstance(servers, dict):
        raise safe_read.UnreadableFile("must contain an object `mcpServers`")
    return servers, data


def entry_of(name: str, server: Any) -> str:
    """A server of `.mcp.json`, as consents name it."""
    return format_entry(f"{MCP_FILE}.{name}", server)


def list_entries(path: str) -> dict[str, str]:
    """The servers of `.mcp.json` by name, as consents name them. `from_project` reports a file that is invalid."""
    try:
        return {name: entry_of(name, one) for name, one in read_project_file(path)[0].items()}
    except safe_read.UnreadableFile:
        return {}


def list_pending(path: str, trust: ProjectTrust) -> Json:
    """Return the servers of `.mcp.json` that have no effect until the folder is trusted."""
    try:
        servers = read_project_file(path)[0]
    except safe_read.UnreadableFile:
        return {}
    return {
        name: one for name, one in servers.items() if trust.find_obstacle("project", entry_of(name, one)) is not None
    }


class UserServers(Struct, frozen=True, kw_only=True):
    """What `.claude.json` declares."""

    local: list[ServerDeclaration] = []
    user: list[ServerDeclaration] = []
    rejected: tuple[str, ...] = ()
    """Servers of `.mcp.json` that the user rejected."""
    problems: list[str] = []


def from_user_file(path: Path, selection: SourceSelection) -> UserServers:
    """Return the servers of `.claude.json`, as far as their scope is selected."""

    try:
        found = read_user_config(path)
        project = found.project(project_folders(selection.project))
    except safe_read.MissingFile:
        return UserServers()
    except safe_read.UnreadableFile as exc:
        problem = SettingsProblem(path=str(path), text=f"{exc}; its MCP servers are not used", line=exc.line)
        return UserServers(problems=[str(problem)])

    def declare(source: str, servers: Json) -> list[ServerDeclaration]:
        active = {name: server for name, server in servers.items() if name not in project.disabledMcpServers}
        if not active or not selection.includes(source):
            return []
        return [ServerDeclaration(source=source, path=printable(str(path)), servers=active)]

    return UserServers(
        local=declare("local", project.mcpServers),
        user=declare("user", found.mcpServers),
        rejected=tuple(project.disabledMcpjsonServers),
    )


def from_project(
    path: str,
    trust: ProjectTrust,
    merged: MergedSettings,
    rejected: Collection[str] = (),
    *,
    tree: FileTree = HOST_TREE,
) -> tuple[list[ServerDeclaration], list[str]]:
    """Return the servers of `.mcp.json` that take effect, and warnings about problems and untrusted servers."""
    try:
        servers, data = read_project_file(path, tree)
    except safe_read.MissingFile:
        return [], []
    except safe_read.UnreadableFile as exc:
        return [], [str(SettingsProblem(path=path, text=f"{exc}; its MCP servers are not used", line=exc.line))]
    approves_all, approved = merged.is_on("enableAllProjectMcpServers"), merged.get("enabledMcpjsonServers", ())
    obstacles = {
        name: None
        if approves_all or name in approved
        else trust.find_obstacle("project", entry_of(name, servers[name]))
        for name in servers
    }
    warnings = (
        [str(SettingsProblem(path=path, text=f"{duplicate}; only the last one takes effect"))]
        if (duplicate := find_duplicate_key(data))
        else []
    )
    for reason in dict.fromkeys(reason for reason in obstacles.values() if reason is not None):
        names = ", ".join(printable(name) for name in [name for name in servers if obstacles[name] == reason][:12])
        advice = f"{reason} (to trust it, run `parley trust {printable(os.path.dirname(path))}`)"
        warnings.append(f"settings: {printable(path)}: the MCP servers {names} are not used: {advice}")
    disabled = (*merged.get("disabledMcpjsonServers", ()), *rejected)
    active = {name: server for name, server in servers.items() if name not in disabled and obstacles[name] is None}
    return [
        ServerDeclaration(source="project", path=printable(path), servers=active, by_tree=True)
    ] if active else [], warnings
