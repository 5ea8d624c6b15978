"""NATS behind TLS: the server is checked with `--nats-ca`, and nothing is sent to another one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.cluster.base import ClusterError, LogKey
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.nats.connection import find_exposure
from tests.helpers.nats import NatsServer, nats_server, require_program, start_all
from tests.helpers.tls import make_certificate

OPTIONS = NatsClusterOptions(shards=4, ttl_seconds=5, durability=DurabilityOptions(accept_loss=True))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    require_program()

    def make() -> list[NatsServer]:
        server = NatsServer(tmp_path)
        server.certificate = make_certificate(tmp_path, "nats")
        return [server]

    with start_all(make) as (server,):
        yield server


async def test_a_cluster_works_over_tls(server: NatsServer) -> None:
    assert server.certificate is not None
    address = NatsAddress(url=server.url, ca_file=Path(server.certificate[0]))
    cluster = await open_nats(address, OPTIONS)
    try:
        key = LogKey("tenant", "session")
        last = await cluster.log.append(key, b"hello", expected=0, message_id="1")
        assert [data async for _, data in cluster.log.read(key)] == [b"hello"]
        assert await cluster.log.head(key) == last
        assert await cluster.ownership.acquire(0, "host") is not None
    finally:
        await cluster.close()


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_whose_certificate_is_not_known_gets_nothing(
    server: NatsServer, tmp_path: Path, scheme: str
) -> None:
    other = Path(make_certificate(tmp_path, "other")[0])
    url = f"{scheme}://user:secret@127.0.0.1:{server.port}"
    with pytest.raises(ClusterError) as refused:
        await open_nats(NatsAddress(url=url, ca_file=other, connect_seconds=1), OPTIONS)
    assert f"127.0.0.1:{server.port}" in str(refused.value)
    assert "certificate" in str(refused.value).lower()
    assert "secret" not in str(refused.value)


def test_the_commands_take_the_certificates_of_nats(server: NatsServer) -> None:
    assert server.certificate is not None
    from tests.helpers.forked import PARLEY

    known = ("--nats-ca", server.certificate[0])
    for more, expected in ((known, "there is no cluster"), ((), "certificate")):
        done = subprocess.run(
            [PARLEY, "cluster", "status", "--nats", server.url, *more], capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0, expected in done.stderr.lower()) == (True, True), done.stderr


async def test_a_server_without_tls_gets_no_password(tmp_path: Path) -> None:
    ca = Path(make_certificate(tmp_path, "nats")[0])
    with nats_server(tmp_path) as server:
        for url, ca_file in ((server.url.replace("nats:", "tls:"), None), (server.url, ca)):
            address = NatsAddress(url=url, ca_file=ca_file, credentials="user:secret", connect_seconds=1)
            with pytest.raises(ClusterError, match="does not offer TLS"):
                await open_nats(address, OPTIONS)


async def test_a_server_that_lets_everybody_in_is_reported(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        (problem,) = await find_exposure(NatsAddress(url=f"nats://user:secret@127.0.0.1:{server.port}"))
    assert f"127.0.0.1:{server.port} accepts connections without credentials" in problem
    assert "secret" not in problem
