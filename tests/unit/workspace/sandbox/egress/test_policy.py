"""Which hosts and addresses the egress policy permits."""

from __future__ import annotations

import pytest

from parley.workspace.sandbox.egress.proxy import EgressPolicy, InvalidHost, read_host, read_pattern, read_patterns


def policy(allowed: list[str], denied: list[str] | None = None) -> EgressPolicy:
    def fail(text: str) -> None:
        raise AssertionError(text)

    return EgressPolicy(allowed=read_patterns(allowed, fail), denied=read_patterns(denied or [], fail))


@pytest.mark.parametrize(
    ("pattern", "host", "verdict"),
    [
        ("example.com", "example.com", "allow"),
        ("Example.COM.", "example.com", "allow"),
        ("example.com", "EXAMPLE.com.", "allow"),
        ("example.com", "www.example.com", "ask"),
        ("example.com", "notexample.com", "ask"),
        ("example.com", "example.com.evil.org", "ask"),
        ("*.example.com", "www.example.com", "allow"),
        ("*.example.com", "a.b.example.com", "allow"),
        ("*.example.com", "example.com", "ask"),
        ("*.example.com", "notexample.com", "ask"),
        ("*.example.com", "example.com.evil.org", "ask"),
        ("api-*.example.com", "api-7.example.com", "allow"),
        ("api-*.example.com", "api-7.x.example.com", "ask"),
        ("*", "anything.org", "allow"),
        ("domain:example.com", "example.com", "allow"),
        ("bücher.example", "xn--bcher-kva.example", "allow"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", "allow"),
        ("10.0.0.5", "10.0.0.5", "allow"),
        ("10.0.0.5", "::ffff:10.0.0.5", "allow"),
        ("::1", "[::1]", "allow"),
    ],
)
def test_a_pattern_matches_labels(pattern: str, host: str, verdict: str) -> None:
    assert policy([pattern]).judge(read_host(host)) == verdict


def test_a_denied_pattern_wins() -> None:
    both = policy(["*.example.com", "a.test"], ["secret.example.com", "*.a.test"])
    assert both.judge("secret.example.com") == "deny"
    assert both.judge("other.example.com") == "allow"
    assert both.judge("x.a.test") == "deny"
    assert both.judge("a.test") == "allow"
    assert policy(["*"], ["*"]).judge("example.com") == "deny"


@pytest.mark.parametrize(
    ("allowed", "host", "address", "is_refused"),
    [
        ("*", "example.com", "93.184.216.34", False),
        ("*", "example.com", "127.0.0.1", True),
        ("*", "example.com", "169.254.169.254", True),
        ("*", "example.com", "::ffff:127.0.0.1", True),
        ("*", "example.com", "64:ff9b::7f00:1", True),
        ("example.com", "example.com", "10.1.2.3", True),
        ("*.internal", "db.internal", "10.1.2.3", True),
        ("db.internal", "db.internal", "10.1.2.3", False),
        ("localhost", "localhost", "127.0.0.1", False),
        ("localhost", "localhost", "::1", False),
        ("10.1.2.3", "10.1.2.3", "10.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", "10.1.2.4", True),
    ],
)
def test_a_private_address_must_be_named(allowed: str, host: str, address: str, is_refused: bool) -> None:
    assert bool(policy([allowed]).refuses_address(host, address)) == is_refused


def test_a_name_opens_a_private_address_that_is_named_too() -> None:
    assert not policy(["git.example.com", "10.1.2.3"]).refuses_address("git.example.com", "10.1.2.3")


def test_a_denied_address_is_refused_for_every_name() -> None:
    assert policy(["example.com"], ["93.184.216.34"]).refuses_address("example.com", "93.184.216.34")
    assert policy(["example.com"], ["93.184.216.34"]).refuses_address("example.com", "::ffff:93.184.216.34")


@pytest.mark.parametrize(
    "text", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "a_b.test", "a..b", "", "[a.test]", "é.test"]
)
def test_a_host_has_one_spelling(text: str) -> None:
    with pytest.raises(InvalidHost):
        read_host(text)


@pytest.mark.parametrize(
    "text", ["https://example.com", "example.com/path", "example.com:443", "*.0.0.5", "*.", "", "a b"]
)
def test_an_invalid_pattern_is_reported_and_left_out(text: str) -> None:
    with pytest.raises(InvalidHost):
        read_pattern(text)
    said: list[str] = []
    assert read_patterns([text, "ok.test"], said.append) == ("ok.test",)
    assert len(said) == 1


@pytest.mark.parametrize("pattern", ["127.1", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "127.0.0.1"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "::7f00:1"])
def test_a_denied_address_is_denied_in_every_spelling(pattern: str, address: str) -> None:
    policy = EgressPolicy(denied=(read_pattern(pattern),), allowed=("*",), is_public=lambda address: True)

    assert policy.judge(read_host(address)) == "deny"
    assert policy.refuses_address("example.com", address)
