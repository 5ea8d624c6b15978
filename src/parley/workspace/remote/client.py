"""A session in a remote workspace, as an engine opens it.

remote = connect_workspace(settings, session="…")     # raises WorkspaceUnavailable
remote.files, remote.processes, remote.worktrees, remote.open_search()
remote.facts                                          # for decisions (facts.py)
remote.welcome.cwd                                    # where it works
"""

from __future__ import annotations

import os
from uuid import uuid4

from parley.version import __version__
from parley.workspace.remote.facts import FactReader
from parley.workspace.remote.files import RemoteFiles, RemoteSearch, RemoteWorktrees
from parley.workspace.remote.handshake import Greeting, new_nonce
from parley.workspace.remote.link import LinkSettings, WorkspaceLink
from parley.workspace.remote.processes import RemoteProcesses
from parley.workspace.remote.wire import WIRE_VERSION


class RemoteWorkspace:
    def __init__(self, link: WorkspaceLink) -> None:
        """`link` is open."""
        assert link.welcome is not None
        self.link = link
        self.welcome = link.welcome
        self.facts = FactReader(link)
        self.files = RemoteFiles(link)
        self.worktrees = RemoteWorktrees(link)
        self.processes = RemoteProcesses(link)
        self.environment = {name: os.fsdecode(value) for name, value in self.welcome.environment.items()}
        self._search = RemoteSearch(link, self.facts.run)

    def open_search(self) -> RemoteSearch:
        return self._search

    def close(self) -> None:
        self.link.close()


def connect_workspace(
    settings: LinkSettings,
    session: str,
    *,
    epoch: int = 0,
    keeps_history: bool = True,
    watches_tree: bool = False,
) -> RemoteWorkspace:
    """Open a session. The folder is the one of the address. Raises WorkspaceUnavailable."""
    greeting = Greeting(
        version=WIRE_VERSION,
        build=__version__,
        nonce=new_nonce(),
        session=session,
        engine=uuid4().hex,
        epoch=epoch,
        folder=settings.address.folder,
        keeps_history=keeps_history,
        watches_tree=watches_tree,
    )
    link = WorkspaceLink(settings, greeting)
    try:
        link.open()
    except BaseException:
        link.close()
        raise
    return RemoteWorkspace(link)
