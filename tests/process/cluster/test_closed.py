"""A cluster that is closed: NATS asks for a password, and what is on it is signed."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from parley.cluster.base import Cluster, SessionKey
from parley.cluster.bridge.messages import Declined, OpenStream, decode_answer, encode
from parley.cluster.cluster_tokens import StoredToken, make_key
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.subjects import command_subject
from parley.gateway.security.access import Principal, Quotas, Scope
from parley.gateway.security.tokens import digest
from tests.helpers.cluster_processes import GatewayProcess
from tests.helpers.host_process import HostProcess
from tests.helpers.nats import NatsServer, start_all

SECRET = "the secret of the cluster in the tests"
OPTIONS = NatsClusterOptions(shards=8, ttl_seconds=2, durability=DurabilityOptions(accept_loss=True))
BYPASS = ("--model", "offline", "--permission-mode", "bypassPermissions")


class ClosedCluster(NamedTuple):
    nats: NatsServer
    connection: Cluster
    """Of somebody who has the password of NATS, but not the secret of the cluster."""
    host: HostProcess
    gateway: GatewayProcess

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        variables = {"PARLEY_NATS_CREDENTIALS": f"parley:{self.nats.password}", "PARLEY_CLUSTER_SECRET": SECRET}
        command = [sys.executable, "-m", "parley", "cluster", *words, "--nats", self.nats.url]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@asynccontextmanager
async def closed_cluster(folder: Path) -> AsyncIterator[ClosedCluster]:
    def make() -> list[NatsServer]:
        server = NatsServer(folder / "nats")
        server.password = secrets.token_hex(16)
        return [server]

    with start_all(make) as (nats,):
        address = NatsAddress(url=nats.url, credentials=f"parley:{nats.password}")
        connection = await open_nats(address, OPTIONS)
        root, token = folder / "root", folder / "token"
        root.mkdir()
        token.touch(mode=0o600)
        token.write_text("a-token-for-the-tests-of-a-closed-cluster")
        credentials, secret = folder / "credentials", folder / "secret"
        for path, text in ((credentials, f"parley:{nats.password}"), (secret, SECRET)):
            path.touch(mode=0o600)
            path.write_text(text)
        variables = {"PARLEY_NATS_CREDENTIALS": f"parley:{nats.password}", "PARLEY_CLUSTER_SECRET": SECRET}
        flags = ["--nats", nats.url, "--nats-credentials", str(credentials), "--cluster-secret", str(secret)]
        async with HostProcess(nats.url, "one", root, *BYPASS, environment=variables) as host:
            gateway = GatewayProcess(folder / "gateway", token, flags)
            await gateway.start()
            try:
                yield ClosedCluster(nats, connection, host, gateway)
            finally:
                await gateway.kill()
                await connection.close()


async def test_a_token_that_somebody_wrote_to_nats_is_refused_until_an_operator_signs_it(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        forged = StoredToken(
            name="mallory",
            hash=digest("a-token-that-nobody-made"),
            tenant="",
            scopes=[Scope.ADMIN],
            roots=[],
            quotas=Quotas(),
            created_at=0.0,
            expires_at=None,
        )
        await cluster.gateway.request("POST", "/tokens", {"name": "alice", "scopes": ["view"]})
        await cluster.connection.registry.put(make_key("mallory"), msgspec.json.encode(forged))
        await cluster.connection.registry.put(make_key("broken"), b"not a token")
        names = await wait_refused(cluster)
        assert names == ["alice"]

        status, _ = await cluster.gateway.request("GET", "/sessions", token="a-token-that-nobody-made")
        assert status == 401
        signed = await asyncio.to_thread(cluster.run, "sign-tokens", "mallory")
        assert (signed.returncode, signed.stdout) == (0, "signed the token mallory\n"), signed.stderr
        again = await asyncio.to_thread(cluster.run, "sign-tokens")
        assert again.stdout == "all tokens are signed\n"


async def wait_refused(cluster: ClosedCluster) -> list[str]:
    """The names that the gateway lists, when it has refused both rows of the test."""
    while sum("is refused" in line for line in cluster.gateway.stderr) < 2:  # noqa: ASYNC110  # of another process
        await asyncio.sleep(0.02)
    return [row["name"] for row in (await cluster.gateway.get("/tokens"))["tokens"]]


async def test_a_request_that_somebody_sent_on_nats_is_declined(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        session = await cluster.gateway.create(cwd=".")
        key = SessionKey("", session)
        opened = OpenStream(
            stream="forged",
            command="forged",
            inbox=cluster.connection.bus.new_inbox(),
            principal=Principal.administrator("mallory"),
            kind="http",
            method="DELETE",
            path=f"/sessions/{session}",
            key=key,
        )
        subject = command_subject("parley", key, 8)
        answer = decode_answer(await cluster.connection.bus.request(subject, encode(opened), 10))
        assert isinstance(answer, Declined)
        assert "signature" in answer.reason
        assert (await cluster.gateway.request("GET", f"/sessions/{session}"))[0] == 200


async def test_commands_of_sessions_find_neither_the_password_of_nats_nor_the_secret(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        assert cluster.host.process is not None
        pid = cluster.host.process.pid
        script = f"env; cat /proc/{pid}/cmdline; tr '\\0' '\\n' < /proc/self/environ; true"
        session = await cluster.gateway.create(cwd=".")
        result = await cluster.gateway.ask(session, f"call Bash {json.dumps({'command': script})}\nshow")

        assert "PATH=" in result["result"]
        assert cluster.nats.password not in result["result"]
        assert SECRET not in result["result"]
        assert "PARLEY_NATS" not in result["result"]
        assert not any("warning:" in line for line in cluster.host.stderr)
