"""A workspace server in a thread of this process, and sessions that are connected to it.

With PARLEY_TEST_WORKSPACE=remote the helpers of tools and files (tools.py, workspace.py) give the same tests a remote
workspace: `python -m tests.stress.workspace.remote_suite` runs them so.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from parley.compose.remote import serve_workspace
from parley.protocol.options import CliOptions
from parley.workspace.base import FileSearch, Worktrees
from parley.workspace.git import Git
from parley.workspace.process.processes import Processes
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.client import RemoteWorkspace, connect_workspace
from parley.workspace.remote.link import LinkSettings
from parley.workspace.remote.server import WorkspaceServer
from parley.workspace.search.search import LocalSearch
from parley.workspace.worktrees import GitWorktrees

T = TypeVar("T")
TOKEN = "a token for tests, long enough"
MAX_RECENT = 4
VARIABLE = "PARLEY_TEST_WORKSPACE"


def is_remote() -> bool:
    return os.environ.get(VARIABLE) == "remote"


class ServerThread:
    """A server on a loop of its own."""

    def __init__(self, root: Path | str, state: Path, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="workspace-server", daemon=True)
        self._thread.start()
        self._root, self._state, self._options = str(root), state, options
        self.socket = Path(tempfile.mkdtemp(prefix="parley-ws-")) / "s"
        self.server: WorkspaceServer | None = None
        self._connected: list[RemoteWorkspace] = []
        self.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def start(self) -> None:
        address = WorkspaceAddress(path=str(self.socket))
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self._state)}
        self.server = self.run(
            serve_workspace(address, self._root, TOKEN, environment, state=self._state, **self._options)
        )

    def stop(self) -> None:
        if self.server is not None:
            self.run(self.server.close())
            self.server = None

    def close(self) -> None:
        """Stop it, and end the engines that are connected."""
        for remote in self._connected:
            remote.close()
        self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def has_ended(self, session: str) -> bool:
        """Whether all commands of a session have ended."""
        assert self.server is not None
        commands = self.server._sessions[session].workspace.commands.values()
        return all(command.running is not None and command.running.ended.done() for command in commands)

    def drop_connections(self) -> None:
        """Cut all connections, as a network does."""

        async def cut() -> None:
            assert self.server is not None
            for session in self.server._sessions.values():
                if session.channel is not None:
                    session.channel._writer.transport.abort()

        self.run(cut())

    def connect(self, folder: Path | str = "", session: str = "", **options: Any) -> RemoteWorkspace:
        address = WorkspaceAddress(path=str(self.socket), folder=str(folder))
        settings = LinkSettings(address=address, token=options.pop("token", TOKEN), **options.pop("settings", {}))
        remote = connect_workspace(settings, session or uuid4().hex, **options)
        self._connected.append(remote)
        return remote


@cache
def shared_server() -> ServerThread:
    """For the tests that only need some remote workspace."""
    return ServerThread("/", Path(tempfile.mkdtemp(prefix="parley-ws-state-")))


def make_processes() -> Processes:
    """Commands of this machine, or of a remote workspace."""
    return shared_server().connect().processes if is_remote() else Processes()


def make_search(environment: dict[str, str]) -> FileSearch:
    """The search of this machine, or of a remote workspace, which has an environment of its own."""
    return shared_server().connect().open_search() if is_remote() else LocalSearch(environment)


def make_worktrees(processes: Processes, environment: dict[str, str]) -> Worktrees:
    return shared_server().connect().worktrees if is_remote() else GitWorktrees(Git(processes, environment, lambda: ()))


def make_commands(folder: Path) -> dict[str, Any]:
    """Commands and the folder for their results: of this machine, or of a remote workspace."""
    if not is_remote():
        return {"processes": Processes(), "results_folder": folder / "results"}
    remote = shared_server().connect()
    return {"processes": remote.processes, "results_folder": Path(remote.welcome.own_folder, "tool-results")}


def with_workspace(options: CliOptions, environment: dict[str, str], folder: Path) -> CliOptions:
    """The options of a session in a folder, or in the same folder as a remote workspace."""
    if not is_remote() or options.workspace is not None:
        return options
    environment["PARLEY_WORKSPACE_TOKEN"] = TOKEN
    return options.replace(workspace=f"unix:{server_of(folder).socket}#{folder}")


_recent: dict[Path, ServerThread] = {}
"""The servers of the last tests. Older ones are closed, because each has a thread and descriptors."""


def server_of(folder: Path, state: Path | None = None) -> ServerThread:
    """A server for the sessions of one test: their ids are the same in every test."""
    if folder not in _recent:
        while len(_recent) >= MAX_RECENT:
            _recent.pop(next(iter(_recent))).close()
        _recent[folder] = ServerThread("/", state or Path(tempfile.mkdtemp(prefix="parley-ws-state-")))
    return _recent[folder]
