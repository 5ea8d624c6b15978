"""Servers that all tests of clusters share. Each test has streams of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import nats, postgres
from tests.helpers.cluster_places import ClusterPlace


@pytest.fixture(scope="session")
def single_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    nats.require_program()
    with nats.nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server.url


@pytest.fixture(scope="session")
def three_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    nats.require_program()
    with nats.nats_cluster(tmp_path_factory.mktemp("nats")) as servers:
        yield ",".join(server.url for server in servers)


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    programs = postgres.programs()
    if programs is None:
        pytest.skip("PostgreSQL is missing")
    with postgres.server(programs) as address:
        yield address


def make_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> ClusterPlace:
    if kind == "local":
        return ClusterPlace(kind, folder)
    if kind == "three servers":
        return ClusterPlace(kind, folder, url=request.getfixturevalue("three_nats"), replicas=3)
    address = request.getfixturevalue("postgres_address") if kind == "postgres" else None
    return ClusterPlace(kind, folder, url=request.getfixturevalue("single_nats"), log_address=address)


@pytest.fixture(params=["local", "nats", "three servers"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterPlace:
    return make_place(request.param, request, tmp_path)


@pytest.fixture(params=["local", "nats", "three servers", "postgres"])
def log_place(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterPlace:
    return make_place(request.param, request, tmp_path)
