"""Serve the folders of this machine to engines on others: `parley workspace`, and every host of a cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parley.errors import UsageError
from parley.permissions.filesystem import RealFilesystem
from parley.protocol.base import Struct
from parley.settings.env_vars import child_environment
from parley.settings.safe_read import TREE_FACTS
from parley.settings.sources import config_folder
from parley.workspace.remote.address import WorkspaceAddress, dial
from parley.workspace.remote.server import GRACE_SECONDS, ServerPlace, WorkspaceServer
from parley.workspace.remote.wire import read_token_file

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
        "identity": lambda path, limit: fs.identity(path),
        "signature": lambda path, limit: fs.signature(path),
        "state": lambda path, limit: fs.state(path),
        "program": find_program,
        **TREE_FACTS,
    }


def find_program(name_and_path: str, limit: int) -> str | None:
    name, _, search_path = name_and_path.partition("\0")
    return shutil.which(name, path=search_path or os.defpath)
