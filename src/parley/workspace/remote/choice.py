"""Which workspace a session of a cluster has, and how its owner reaches it.

A session stores a `SessionWorkspace`. Its owner asks `find_options` for the options of the engine:

    local    the folder is on one host. Another owner uses the workspace server of that host (`addresses`).
    shared   the folder has the same path on every host
    remote   the folder is behind a workspace server that belongs to no host

A host that serves its folders starts `compose.workspace_server.serve_workspace` and publishes the address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from parley.errors import SessionError
from parley.protocol.base import Struct
from parley.workspace.remote.address import WorkspaceAddress

Kind = Literal["local", "shared", "remote"]


class WorkspaceAway(SessionError):
    """The host that has the files of a session is not there. The session can wait for it."""


class SessionWorkspace(Struct, frozen=True, kw_only=True):
    kind: Kind = "shared"
    host: str = ""
    """The host that has the folder, for `local`."""
    address: str = ""
    """The address of the server with its folder, for `remote`."""
    wait: bool = False
    """Whether prompts wait for the host, for `local`. Otherwise they run, and tools report that it is away."""


def read_workspace(stored: str | None) -> SessionWorkspace | None:
    """As the row of a session has it; None if it uses the files of the machine that it runs on."""
    return None if stored is None else msgspec.json.decode(stored, type=SessionWorkspace)


def check_address(text: str) -> str:
    """Raises UsageError if it is not the address of a workspace server."""
    WorkspaceAddress.parse(text)
    return text


def find_options(chosen: SessionWorkspace, cwd: str, owner: str, addresses: Mapping[str, str]) -> list[str]:
    """The options of an engine on the host `owner`; none if it uses its own files. Raises WorkspaceAway.

    `addresses`: the workspace servers of the hosts that are there, by name, as `tcp://HOST:PORT`.
    """
    if chosen.kind == "remote":
        return ["--workspace", chosen.address]
    if chosen.kind == "shared" or chosen.host == owner:
        return []
    if not (address := addresses.get(chosen.host)):
        raise WorkspaceAway(
            f"the files of this session ({cwd}) are on the host {chosen.host}, which is not there or does not serve "
            "them; the session continues when it is back"
        )
    separator = "#" if address.startswith("unix:") else ""
    return ["--workspace", f"{address}{separator}{cwd}"]
