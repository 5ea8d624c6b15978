"""Remote workspaces: that of a session (`--workspace`), and the server for the folders of this machine.

Settings of the project are read before the session has an id, so there are two connections at the start: one to read
them, and then the session's own.

The server is `parley workspace`, and part of every host of a cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from parley.errors import SessionError, ToolError, UsageError
from parley.permissions.base import Decision, Deny, ToolRequest
from parley.permissions.filesystem import RealFilesystem, RemoteFilesystem
from parley.permissions.policy import SessionPolicy
from parley.protocol.base import Struct
from parley.protocol.options import CliOptions
from parley.settings.env_vars import child_environment, is_truthy, read_int
from parley.settings.safe_read import TREE_FACTS, RemoteTree
from parley.settings.sources import config_folder
from parley.workspace.process.processes import OutputDirectory
from parley.workspace.remote.address import WorkspaceAddress, dial
from parley.workspace.remote.client import RemoteWorkspace, connect_workspace
from parley.workspace.remote.link import LinkSettings, WorkspaceUnavailable
from parley.workspace.remote.server import GRACE_SECONDS, ServerPlace, WorkspaceServer
from parley.workspace.remote.wire import check_token, read_token_file

TOKEN_VARIABLE = "PARLEY_WORKSPACE_TOKEN"
EPOCH_VARIABLE = "PARLEY_WORKSPACE_EPOCH"
WAIT_SECONDS = 10
NOT_COMBINED = {
    "worktree": "--worktree",
    "restricted": "--restricted",
}
"""Options that a session with a remote workspace does not take."""
LEFT_OUT = (
    (".claude/agents", "agents"),
    (".claude/commands", "commands"),
    (".claude/skills", "skills"),
    (".agents/skills", "skills"),
    (".claude/output-styles", "output styles"),
)
"""Folders of a project that are not read from a remote workspace."""


class RemoteAccess:
    """The workspace that `--workspace` names. Raises UsageError or SessionError."""

    def __init__(self, options: CliOptions, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
        assert options.workspace is not None
        refused = [flag for field, flag in NOT_COMBINED.items() if field in options.given]
        if refused:
            raise UsageError(f"{refused[0]} cannot be combined with --workspace")
        wait = WAIT_SECONDS if options.workspace_wait is None else options.workspace_wait
        self._settings = LinkSettings(
            address=WorkspaceAddress.parse(options.workspace),
            token=find_token(options, environment),
            ca_file=options.workspace_ca,
            wait_seconds=float(wait),
            report=report,
        )
        self._epoch = read_int(dict(environment), EPOCH_VARIABLE) or 0
        self._watches_tree = is_truthy(environment.get("PARLEY_SNAPSHOT_TREE"))
        self._current = self._connect("settings", keeps_history=False)
        self.welcome = self._current.welcome
        self.environment = self._current.environment
        self.tree = RemoteTree(self._get)
        self.filesystem = RemoteFilesystem(self.welcome.home, self._get)

    def _connect(self, session: str, *, keeps_history: bool) -> RemoteWorkspace:
        name = session if keeps_history else f"{session}-{uuid4().hex}"
        try:
            return connect_workspace(
                self._settings,
                name,
                epoch=self._epoch,
                keeps_history=keeps_history,
                watches_tree=self._watches_tree and session != "settings",
            )
        except WorkspaceUnavailable as exc:
            raise SessionError(str(exc)) from None

    def _get(self, kind: str, path: str, limit: int, guess: Any) -> Any:
        return self._current.facts.get(kind, path, limit, guess)

    def run(self, work: Callable[[], Any]) -> Any:
        """Do work that needs facts about many files. Raises SessionError if the workspace does not answer."""
        try:
            return self._current.facts.run(work)
        except WorkspaceUnavailable as exc:
            raise SessionError(str(exc)) from None

    async def prepare(self, work: Callable[[], object]) -> None:
        await self._current.facts.prepare(work)

    def open(self, session_id: str, *, keeps_history: bool) -> RemoteWorkspace:
        """The session's own connection. Raises SessionError."""
        opened = self._connect(session_id, keeps_history=keeps_history)
        self.close()
        self._current, self.welcome = opened, opened.welcome
        return opened

    def close(self) -> None:
        self._current.link.end()

    @property
    def own_folder(self) -> Path:
        """Where the session's results, task output and plan are. Known after `open`."""
        return Path(self.welcome.own_folder)

    def list_left_out(self, config_root: str) -> list[str]:
        """A sentence for every folder of the project that has no effect."""
        exists = self.tree.lexists
        found = self.run(lambda: [(name, what) for name, what in LEFT_OUT if exists(Path(config_root, name))])
        return [
            f"{name} of the project is not read: the workspace is remote; {what} come from --settings, --agents, "
            f"plugins or the user's own folder"
            for name, what in found
        ]


def find_token(options: CliOptions, environment: Mapping[str, str]) -> str:
    """Raises UsageError."""
    if options.workspace_token_file is not None:
        return read_token_file(options.workspace_token_file)
    if not (token := environment.get(TOKEN_VARIABLE, "").strip()):
        raise UsageError(f"--workspace needs a token: set {TOKEN_VARIABLE}, or use --workspace-token-file")
    return check_token(token, TOKEN_VARIABLE)


class RemoteOutputDirectory(OutputDirectory, frozen=True, kw_only=True):
    """The folder for output files on the server, which creates it."""

    def create(self) -> Path:
        return self.fallback


class RemotePolicy(SessionPolicy):
    """A policy whose facts come from a remote workspace.

    `prepare` collects them without blocking; a decision that was not prepared waits for them. A workspace that does not
    answer denies.
    """

    def __init__(self, remote: RemoteAccess, *args: Any) -> None:
        super().__init__(*args)
        self._remote = remote

    async def prepare(self, request: ToolRequest, mode: str) -> None:
        """Collect the facts of a decision. Does not raise: the decision reports what is wrong."""
        try:
            if not self.has_repository:
                await self._remote.prepare(self.find_repository)
                self._set_repository()
            await self._remote.prepare(lambda: super(RemotePolicy, self).decide(request, mode))
        except WorkspaceUnavailable:
            return

    def decide(self, request: ToolRequest, mode: str) -> Decision:
        try:
            self._set_repository()
            decision: Decision = self._remote.run(lambda: super(RemotePolicy, self).decide(request, mode))
        except (ToolError, SessionError) as exc:
            return Deny(message=f"The call was not run: {exc}.", source="internal", reason_type="other")
        return decision

    def _set_repository(self) -> None:
        if not self.has_repository:
            self.set_repository(self._remote.run(self.find_repository))

    def is_hidden(self, path: str) -> bool:
        try:
            return super().is_hidden(path)
        except ToolError:
            return True


MAX_READ_BYTES = 16 << 20
"""Of a file whose contents are a fact, such as a git index."""
PROBE_SECONDS = 1.0
EVERYWHERE = ("0.0.0.0", "::")


class WorkspaceService(Struct, frozen=True, kw_only=True):
    """How a host serves its folders to the other hosts."""

    address: WorkspaceAddress
    certificate: tuple[str, str] | None = None


def read_service(listen: str, certificate: str, key: str) -> WorkspaceService:
    """Raises UsageError."""
    address = WorkspaceAddress.parse(listen)
    if address.host in EVERYWHERE:
        raise UsageError(f"--workspace-listen needs an address that the other hosts can reach, not {listen}")
    if not certificate and not address.is_private:
        raise UsageError(f"{listen} is not a loopback address: --workspace-listen needs --workspace-tls-cert for it")
    return WorkspaceService(address=address, certificate=(certificate, key or certificate) if certificate else None)


def read_workspace_token(path: str) -> str:
    """The token in a file; empty without a file. Raises UsageError, also if others can read it."""
    return read_token_file(path) if path else ""


def format_address(address: WorkspaceAddress) -> str:
    """As other machines reach it, without a folder."""
    if address.path:
        return str(address)
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{'tls' if address.is_encrypted else 'tcp'}://{host}:{address.port}"


async def is_listening(address: str) -> bool:
    """Whether something listens at the address of a workspace server."""
    try:
        _, writer = await dial(WorkspaceAddress.parse(address), None, PROBE_SECONDS)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def serve_workspace(
    address: WorkspaceAddress,
    root: str,
    token: str,
    environment: Mapping[str, str],
    *,
    state: Path | None = None,
    certificate: tuple[str, str] | None = None,
    grace_seconds: float = GRACE_SECONDS,
    log: Callable[[str], None] = lambda text: None,
) -> WorkspaceServer:
    """Start a server for the folders below `root`. Raises UsageError."""
    children = child_environment(dict(environment))
    place = ServerPlace(
        root=root,
        state=state or config_folder(environment) / "workspace",
        environment=children,
        find_fact=fact_finders(children.get("HOME", "/")),
        grace_seconds=grace_seconds,
        log=log,
    )
    return await WorkspaceServer.start(place, address, token, certificate)


def fact_finders(home: str) -> dict[str, Callable[[str, int], Any]]:
    """How each fact is found on this machine (workspace/remote/client.py)."""
    fs = RealFilesystem(home)
    return {
        "readlink": lambda path, limit: fs.readlink(path),
        "exists": lambda path, limit: fs.exists(path),
        "entries": fs.entries,
        "listing": fs.listing,
        "is_folder": lambda path, limit: fs.is_folder(path),
        "read": lambda path, limit: fs.read(path, min(limit, MAX_READ_BYTES)),
        "head": lambda path, limit: fs.head(path, min(limit, MAX_READ_BYTES)),
        "identity": lambda path, limit: fs.identity(path),
        "signature": lambda path, limit: fs.signature(path),
        "state": lambda path, limit: fs.state(path),
        "program": find_program,
        **TREE_FACTS,
    }


def find_program(name_and_path: str, limit: int) -> str | None:
    name, _, search_path = name_and_path.partition("\0")
    return shutil.which(name, path=search_path or os.defpath)
