"""Addresses and versions of NATS servers."""

from __future__ import annotations

import pytest

from parley.cluster.nats.connection import NatsAddress, find_version_problem


@pytest.mark.parametrize(
    ("url", "described"),
    [
        ("nats://127.0.0.1:4222", "127.0.0.1:4222"),
        ("nats://user:secret@one:4222, tls://two:4223", "one:4222, two:4223"),
        ("user:p@ss@one:4222,two", "one:4222, two"),
    ],
)
def test_an_address_is_described_without_its_password(url: str, described: str) -> None:
    assert NatsAddress(url=url).describe() == described


@pytest.mark.parametrize(
    ("url", "requires_tls"),
    [("nats://one,nats://two", False), ("tls://one,tls://two", True), ("tls://one,nats://two", True), ("one", False)],
)
def test_one_address_with_tls_requires_it_of_all(url: str, requires_tls: bool) -> None:
    assert NatsAddress(url=url).requires_tls is requires_tls


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("2.9.10", "has version 2.9.10; Parley needs 2.11 or newer"),
        ("2.11.0", None),
        ("2.15.1-preview", None),
        ("3.0.0", None),
    ],
)
def test_a_server_must_not_be_too_old(version: str, problem: str | None) -> None:
    assert find_version_problem(version) == problem
