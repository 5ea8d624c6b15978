"""A cluster that is closed: NATS asks for a password, and what is on it is signed."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from parley.cluster.base import Bus, BusRequest, Cluster, LogKey
from parley.cluster.bridge.messages import (
    Accepted,
    Alive,
    BusFrame,
    ClientMessage,
    Declined,
    OpenStream,
    StreamEnded,
    decode_answer,
    decode_content,
    decode_frame,
    decode_open,
    encode,
)
from parley.cluster.cluster_secret import SEALED, ClusterSecret
from parley.cluster.cluster_tokens import is_signed, make_key
from parley.cluster.join import CONFIG_KEY, ClusterConfig, Wanted, join_cluster
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.subjects import command_subject
from parley.gateway.security.access import Principal, Quotas, Scope
from parley.gateway.security.tokens import StoredToken, digest
from tests.helpers.cluster_processes import GatewayProcess
from tests.helpers.gateway import read_until, user
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
        return self.run_with(SECRET, "cluster", *words)

    def run_with(self, secret: str, *words: str) -> subprocess.CompletedProcess[str]:
        variables = {"PARLEY_NATS_CREDENTIALS": f"parley:{self.nats.password}", "PARLEY_CLUSTER_SECRET": secret}
        command = [sys.executable, "-m", "parley", *words, "--nats", self.nats.url]
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
        unknown = await asyncio.to_thread(cluster.run, "sign-tokens", "mallory", "nobody")
        assert unknown.returncode != 0
        assert "there is no token 'nobody'" in unknown.stderr


async def wait_refused(cluster: ClosedCluster) -> list[str]:
    """The names that the gateway lists, when it has refused both rows of the test."""
    while sum("is refused" in line for line in cluster.gateway.stderr) < 2:  # noqa: ASYNC110  # of another process
        await asyncio.sleep(0.02)
    return [row["name"] for row in (await cluster.gateway.get("/tokens"))["tokens"]]


async def test_a_request_that_somebody_sent_on_nats_is_declined(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        session = await cluster.gateway.create(cwd=".")
        key = LogKey("", session)
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


class Recorder:
    """Reads all that gateways and hosts say to each other."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._changed = asyncio.Event()
        self.opens: list[tuple[BusRequest, OpenStream]] = []
        self.frames: list[tuple[str, BusFrame]] = []
        """Each with the inbox that it was sent to."""

    async def start(self) -> None:
        await self._bus.subscribe("parley.cmd.>", self._on_open)
        await self._bus.subscribe("_INBOX.>", self._on_message)

    async def _on_open(self, request: BusRequest) -> None:
        self.opens.append((request, decode_open(strip(request.data))))
        self._changed.set()

    async def _on_message(self, request: BusRequest) -> None:
        with suppress(msgspec.MsgspecError):  # an answer
            if isinstance(frame := decode_frame(strip(request.data)), BusFrame):
                self.frames.append((request.subject, frame))
                self._changed.set()

    async def find_open(self, path: str) -> tuple[BusRequest, OpenStream]:
        """The first request with a path."""
        while not (found := [each for each in self.opens if each[1].path == path]):
            await self._wait()
        return found[0]

    async def find_frames(self, stream: str, inbox: str, *, is_from_host: bool) -> list[tuple[str, BusFrame]]:
        """The frames of one end of a stream, when there are some. `inbox`: that of the gateway."""
        while not (
            found := [each for each in self.frames if each[1].stream == stream and (each[0] == inbox) == is_from_host]
        ):
            await self._wait()
        return found

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def strip(message: bytes) -> bytes:
    """A message without its signature."""
    return message[33:] if message.startswith(SEALED) else message


async def test_a_frame_that_somebody_sent_into_an_open_websocket_is_refused(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        bus = cluster.connection.bus
        recorder = Recorder(bus)
        await recorder.start()
        session = await cluster.gateway.create(cwd=".")
        path = f"/sessions/{session}/ws"
        socket = await cluster.gateway.connect(path)
        _, opened = await recorder.find_open(path)
        inbox, first = (await recorder.find_frames(opened.stream, opened.inbox, is_from_host=False))[0]
        forged = encode(ClientMessage(user('call Bash {"command": "touch forged"}').encode()))
        for mac in (b"", first.mac, b"x" * 16):
            await bus.publish(inbox, encode(BusFrame(opened.stream, first.number + 1, forged, True, mac)))
        await bus.publish(inbox, encode(Alive(opened.inbox, {})))  # would end the stream
        while sum(f"a message on {inbox} is refused" in line for line in cluster.host.stderr) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

        await socket.send(user("say still here"))
        result = (await read_until(socket, "result"))[-1]
        assert result["result"] == "still here"
        assert not (tmp_path / "root" / "forged").exists()
        await socket.close()


async def test_a_request_that_is_sent_again_has_no_effect(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        bus = cluster.connection.bus
        recorder = Recorder(bus)
        await recorder.start()
        session = await cluster.gateway.create(cwd=".")
        path = f"/sessions/{session}"
        assert (await cluster.gateway.request("GET", path))[0] == 200
        request, opened = await recorder.find_open(path)
        await recorder.find_frames(opened.stream, opened.inbox, is_from_host=True)
        recorder.frames.clear()

        answer = decode_answer(strip(await bus.request(request.subject, request.data, 10)))
        assert isinstance(answer, Accepted)
        # The keys of the first time are not those of the second, and the host says nothing before it has heard one.
        frames = await recorder.find_frames(opened.stream, opened.inbox, is_from_host=True)
        assert [type(decode_content(frame.data)) for _, frame in frames] == [StreamEnded]


async def test_a_request_of_a_revoked_token_is_declined(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        bus = cluster.connection.bus
        recorder = Recorder(bus)
        await recorder.start()
        token = await cluster.gateway.make_token("bob", "view", "create", "prompt")
        _, created = await cluster.gateway.request("POST", "/sessions", {"cwd": "."}, token=token)
        path = f"/sessions/{created['session_id']}/ws"
        socket = await cluster.gateway.connect(path, token)
        request, _ = await recorder.find_open(path)
        assert (await cluster.gateway.request("DELETE", "/tokens/bob"))[0] == 204
        await socket.wait_closed()

        answer = None
        while not isinstance(answer, Declined):  # the host hears of it at its own time
            answer = decode_answer(strip(await bus.request(request.subject, request.data, 10)))
        assert "'bob'" in answer.reason


async def test_a_host_or_gateway_with_another_secret_does_not_join(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        other, token = "another secret of the tests", str(tmp_path / "token")
        host = ("host", "--root", str(tmp_path / "root"), "--model", "offline", "--accept-loss")
        gateway = ("serve", "--listen", "127.0.0.1:0", "--token-file", token)
        for secret, words, reason in (
            (other, host, "the given secret is not that of the cluster"),
            (other, gateway, "the given secret is not that of the cluster"),
            (other, ("cluster", "sign-tokens"), "the given secret is not that of the cluster"),
            ("", host, "the cluster has a secret"),
            ("", gateway, "the cluster has a secret"),
        ):
            done = await asyncio.to_thread(cluster.run_with, secret, *words)
            assert done.returncode != 0
            assert reason in done.stderr
        status = await asyncio.to_thread(cluster.run_with, "", "cluster", "status")
        assert "secret of the cluster: yes" in status.stdout
        assert "attention" not in status.stdout

        changed = await asyncio.to_thread(cluster.run_with, other, "cluster", "sign-tokens", "--new-secret")
        assert changed.returncode == 0, changed.stderr
        status = await asyncio.to_thread(cluster.run_with, other, "cluster", "status")
        assert status.returncode == 1
        assert "host one does not have the secret of the cluster" in status.stdout


async def test_a_token_of_another_cluster_with_the_same_secret_is_refused(tmp_path: Path) -> None:
    async with closed_cluster(tmp_path) as cluster:
        await cluster.gateway.make_token("alice", "view")
        row = await cluster.connection.registry.get(make_key("alice"))
        assert row is not None
        token = msgspec.json.decode(row.value, type=StoredToken)
        secret = ClusterSecret(SECRET.encode())
        assert is_signed(token, secret.for_cluster("parley"), row.key)
        assert not is_signed(token, secret.for_cluster("staging"), row.key)


async def test_hosts_that_start_together_agree_on_the_time_of_leases(tmp_path: Path) -> None:
    with start_all(lambda: [NatsServer(tmp_path)]) as (nats,):
        address = NatsAddress(url=nats.url)
        first = await open_nats(address, OPTIONS)  # it has its streams, but not yet its row
        found = asyncio.Event()

        async def on_info(_request: BusRequest) -> None:
            found.set()

        await first.bus.subscribe("$JS.API.STREAM.INFO.KV_parley_leases", on_info)
        second = asyncio.create_task(join_cluster(address, OPTIONS, Wanted(), is_host=True))
        await found.wait()
        config = ClusterConfig(OPTIONS.shards, OPTIONS.ttl_seconds)
        await first.registry.put(CONFIG_KEY, msgspec.json.encode(config))
        joined = await second
        assert joined.ownership.ttl_seconds == OPTIONS.ttl_seconds
        await joined.close()
        await first.close()
