"""Where the files of a session are: the address of a workspace server, and which workspace a session of a cluster has.

A server listens at `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`, with an optional folder.

A session stores a `SessionWorkspace`. Its owner asks `find_options` for the options of the engine:

    local    the folder is on one host. Another owner uses the workspace server of that host (`addresses`).
    shared   the folder has the same path on every host
    remote   the folder is behind a workspace server that belongs to no host

A host that serves its folders starts `compose.workspace_server.serve_workspace` and publishes the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from collections.abc import Mapping
from typing import Literal

import msgspec

from parley.errors import SessionError, UsageError
from parley.protocol.base import Struct

Kind = Literal["local", "shared", "remote"]


class WorkspaceAddress(Struct, frozen=True, kw_only=True):
    host: str = ""
    port: int = 0
    path: str = ""
    """Of a Unix socket."""
    is_encrypted: bool = False
    folder: str = ""
    """The working directory; empty for the root of the server."""

    @classmethod
    def parse(cls, text: str) -> WorkspaceAddress:
        """Raises UsageError. `unix:/run/ws.sock#/folder` names a folder of a Unix socket."""
        if text.startswith("unix:"):
            path, _, folder = text.removeprefix("unix:").partition("#")
            if not path.startswith("/"):
                raise UsageError(f"the workspace address {text!r} needs an absolute path: unix:/PATH")
            return cls(path=path, folder=folder)
        scheme, marker, rest = text.partition("://")
        if marker and scheme not in ("tcp", "tls"):
            raise UsageError(f"the workspace address {text!r} starts with {scheme}://; use tcp://, tls:// or unix:")
        place, slash, folder = (rest if marker else text).partition("/")
        host, colon, port = place.rpartition(":")
        host = host.strip("[]")
        if not colon or not host or not port.isdecimal() or int(port) > 65_535:
            raise UsageError(
                f"the workspace address must be tcp://HOST:PORT, tls://HOST:PORT or unix:PATH, not {text!r}"
            )
        return cls(host=host, port=int(port), is_encrypted=scheme == "tls", folder=slash + folder)

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether no one on a network can read along, even without TLS."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


async def dial(
    address: WorkspaceAddress, ca_file: str | None, timeout_seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError."""
    try:
        async with asyncio.timeout(timeout_seconds):
            if address.path:
                return await asyncio.open_unix_connection(address.path)
            context = ssl.create_default_context(cafile=ca_file) if address.is_encrypted else None
            return await asyncio.open_connection(address.host, address.port, ssl=context)
    except TimeoutError:
        raise OSError(f"no connection within {timeout_seconds:.0f} s") from None


def describe(exc: BaseException) -> str:
    if isinstance(exc, OSError):
        return exc.strerror or (os.strerror(exc.errno) if exc.errno else "") or str(exc)
    return str(exc)


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
