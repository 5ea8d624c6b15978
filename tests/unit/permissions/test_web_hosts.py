from __future__ import annotations

import pytest

from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.web_hosts import is_local, matches_host, parse_host


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("domain:example.com", "https://example.com/x"),
        ("domain:Example.COM", "https://EXAMPLE.com:8443/x"),
        ("domain:example.com.", "https://example.com./x"),
        ("domain:*.example.com", "https://a.example.com/"),
        ("domain:*.example.com", "https://a.b.example.com/"),
        ("domain:api-*.example.com", "https://api-7.example.com/"),
        ("domain:*", "https://anything.org/"),
        ("domain:xn--bcher-kva.example", "https://bücher.example/"),
    ],
)
def test_a_rule_fits_its_host(spec: str, url: str) -> None:
    host = parse_host(url)

    assert host is not None
    assert matches_host(spec, host)


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("domain:example.com", "https://www.example.com/"),
        ("domain:example.com", "https://example.com.evil.org/"),
        ("domain:example.com", "https://notexample.com/"),
        ("domain:example.com", "https://evil.org/example.com"),
        ("domain:example.com", "https://evil.org?example.com"),
        ("domain:example.com", "https://evil.org#@example.com"),
        ("domain:*.example.com", "https://example.com/"),
        ("domain:*.example.com", "https://evilexample.com/"),
        ("domain:api-*.example.com", "https://api-7.evil.example.com/"),
    ],
)
def test_a_rule_fits_no_host_that_only_looks_like_it(spec: str, url: str) -> None:
    host = parse_host(url)

    assert host is None or not matches_host(spec, host)


@pytest.mark.parametrize("url", ["https://me@example.com/", "ftp://example.com/", "https:///x", "https://[", "x", ""])
def test_a_url_that_no_one_fetches_has_no_host(url: str) -> None:
    assert parse_host(url) is None


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "a.localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "fd00::1",
        "printer",
        "printer.local",
        "metadata.google.internal",
    ],
)
def test_this_machine_and_its_neighbours_are_near(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "2001:4860:4860::8888", "local.example.com", "x1.org"])
def test_the_public_network_is_not(host: str) -> None:
    assert not is_local(host)


@pytest.mark.parametrize("host", ["[64:ff9b::7f00:1]", "[::127.0.0.1]", "[2002:7f00:1::]"])
def test_an_address_in_another_is_denied_and_never_allowed(host: str) -> None:
    name = parse_host(f"http://{host}/") or ""
    rules = [parse_rule("WebFetch(domain:127.0.0.1)", behavior, "user", "/") for behavior in ("allow", "deny", "ask")]
    known = RuleSet(cwd="/w", rules=tuple(rule for rule in rules if isinstance(rule, Rule)))

    found = [known.find_host_rule(behavior, "WebFetch", name) for behavior in ("allow", "deny", "ask")]

    assert [rule is not None for rule in found] == [False, True, True]
