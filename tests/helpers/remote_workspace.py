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

from parley.compose.workspace_server import serve_workspace
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.client import RemoteWorkspace, connect_workspace
from parley.workspace.remote.link import LinkSettings
from parley.workspace.remote.server import WorkspaceServer

T = TypeVar("T")
TOKEN = "a token for tests, long enough"
VARIABLE = "PARLEY_TEST_WORKSPACE"


def is_remote() -> bool:
    return os.environ.get(VARIABLE) == "remote"


class ServerThread:
    """A server on a loop of its own."""

    def __init__(self, root: Path | str, state: Path, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="workspace-server", daemon=True).start()
        self._root, self._state, self._options = str(root), state, options
        self.socket = Path(tempfile.mkdtemp(prefix="parley-ws-")) / "s"
        self.server: WorkspaceServer | None = None
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
        return connect_workspace(settings, session or uuid4().hex, **options)


@cache
def shared_server() -> ServerThread:
    """For the tests that only need some remote workspace."""
    return ServerThread("/", Path(tempfile.mkdtemp(prefix="parley-ws-state-")))
