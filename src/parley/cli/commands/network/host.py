"""`parley host`: run sessions of a cluster."""

from __future__ import annotations

import logging
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.network.cluster_address import read_cluster, require_cluster
from parley.cli.commands.network.serve import read_hub_settings, require_server
from parley.cli.commands.subcommand import GivenArgs, run_command
from parley.cli.stdio import warn
from parley.errors import InvalidArguments

if TYPE_CHECKING:
    from parley.compose.workspace.server import WorkspaceService
    from parley.workspace.remote.address import SessionWorkspace

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["host"], argv, {"": run})


def run(given: GivenArgs) -> int:
    """Raises UsageError, ClusterError or SessionError."""
    require_server("host")
    require_cluster("host")
    from parley.cluster.host import HostSettings
    from parley.cluster.host_process import run_host
    from parley.compose.workspace.server import read_workspace_token
    from parley.gateway.server_log import FaultLog, ServerLog
    from parley.workspace.process.tree import hide_memory

    # Another process with the same name would take the shards of this one.
    name = given.one("name") or f"{socket.gethostname()[:48]}-{uuid4().hex[:6]}"
    if not NAME.fullmatch(name):
        raise InvalidArguments(f"option '--name' needs up to 64 letters, digits, '_', '.' and '-', not {name!r}")
    prefix, connect = read_cluster(given, is_host=True)  # before the environment is erased
    token = read_workspace_token(read_file_name(given, "workspace-token-file"))
    settings = HostSettings(
        name=name,
        workspace_service=read_workspace_service(given, token),
        workspace_token=token,
        default_workspace=read_default_workspace(given),
        hub=msgspec.structs.replace(read_hub_settings(given, "host"), audit=read_audit_path(given)),
        drain_seconds=given.number("drain-seconds", 30),
        metrics=read_metrics_address(given),
        tenant_quotas=read_file_name(given, "tenant-quotas"),
        tenant_secrets=read_file_name(given, "tenant-secrets"),
    )
    # Commands of sessions have the same user, and the memory has the credentials for NATS. After the arguments were
    # erased: the kernel does not let a process that is hidden write to its own memory file.
    hide_memory()
    log = ServerLog(warn, is_json=given.one("log-format") == "json")
    if log.is_json:
        logging.getLogger().addHandler(FaultLog(log))
    return run_host(connect, prefix, settings, log)


def read_workspace_service(given: GivenArgs, token: str) -> WorkspaceService | None:
    """Raises UsageError."""
    from parley.compose.workspace.server import read_service

    if not given.has("workspace-listen"):
        return None
    if not token:
        raise InvalidArguments("option '--workspace-listen' needs '--workspace-token-file'")
    certificate, key = read_file_name(given, "workspace-tls-cert"), read_file_name(given, "workspace-tls-key")
    return read_service(given.one("workspace-listen"), certificate, key)


def read_default_workspace(given: GivenArgs) -> SessionWorkspace:
    """Raises UsageError."""
    from parley.workspace.remote.address import SessionWorkspace, check_address

    wanted, wait = given.one("workspace-default"), given.has("wait-for-workspace")
    if wanted == "local" or (not wanted and given.has("workspace-listen")):
        return SessionWorkspace(kind="local", wait=wait)
    if wanted in ("", "shared"):
        return SessionWorkspace(kind="shared", wait=wait)
    return SessionWorkspace(kind="remote", address=check_address(wanted), wait=wait)


def read_metrics_address(given: GivenArgs) -> tuple[str, int] | None:
    """Raises UsageError."""
    from parley.gateway.server import Address

    if not given.has("metrics"):
        return None
    address = Address.parse(given.one("metrics"))
    if address.path:
        raise InvalidArguments("option '--metrics' needs HOST:PORT")
    return address.host, address.port


def read_audit_path(given: GivenArgs) -> Path | None:
    return Path(read_file_name(given, "audit-log")) if given.one("audit-log") else None


def read_file_name(given: GivenArgs, key: str) -> str:
    """Relative to where the command was started."""
    return os.path.abspath(given.one(key)) if given.one(key) else ""
