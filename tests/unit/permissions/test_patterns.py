from __future__ import annotations

import pytest

from parley.permissions import patterns
from parley.permissions.patterns import is_local, matches_rule_host, parse_host
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet


def denies(spec: str, path: str, *more: str) -> bool:
    return patterns.matches_widely(spec, path, root="/repo", cwds=("/w", *more), home="/home/me")


def allows(spec: str, path: str) -> bool:
    return patterns.matches_narrowly(spec, path, root="/repo", cwd="/w", home="/home/me")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("//etc/passwd", "/etc/passwd"),
        ("//etc/**", "/etc/ssh/sshd_config"),
        ("~/notes/*.md", "/home/me/notes/a.md"),
        ("/src/**", "/repo/src/deep/a.py"),
        ("docs/*.md", "/w/docs/a.md"),
        ("./docs/*.md", "/w/docs/a.md"),
        ("../other/**", "/other/a"),
        ("docs/**/*.md", "/w/docs/a/b/c.md"),
        ("docs/", "/w/docs/a/b"),
        ("docs", "/w/docs/a"),
        ("*.md", "/w/a/b/c.md"),
        ("src/[ab].py", "/w/src/a.py"),
        ("src/*.{ts,tsx}", "/w/src/a.tsx"),
        ("**", "/w/anything/at/all"),
    ],
)
def test_a_pattern_fits_from_its_anchor_on(spec: str, path: str) -> None:
    assert allows(spec, path)
    assert denies(spec, path)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("/src/**", "/w/src/a.py"),
        ("docs/*.md", "/w/docs/sub/a.md"),
        ("docs/**", "/wdocs/a"),
        ("src/**", "/w/src2/a.py"),
        ("src/**", "/w-evil/src/a.py"),
        ("~/notes/**", "/home/me2/notes/a"),
        ("//etc/**", "/w/etc/a"),
        ("*.md", "/elsewhere/a.md"),
        ("src/*.py", "/w/src/a.pyc"),
    ],
)
def test_a_pattern_fits_nothing_beside_it(spec: str, path: str) -> None:
    assert not allows(spec, path)
    assert not denies(spec, path)


@pytest.mark.parametrize("spec", ["secrets", "secrets/", "secrets/**", "./secrets/**"])
def test_a_single_folder_is_denied_at_any_depth_and_allowed_only_here(spec: str) -> None:
    assert denies(spec, "/w/a/b/secrets/key")
    assert denies(spec, "/w/secrets")
    assert not allows(spec, "/w/a/b/secrets/key")
    assert allows(spec, "/w/secrets/key")


@pytest.mark.parametrize(
    "path", ["/w/.ENV", "/w/.Env/x", "/w/cafe\u0301.env", "/w/CAF\u00c9.env", "/w/.e\u200cnv", "/w/sub/.env"]
)
def test_a_denied_name_is_denied_in_every_spelling(path: str) -> None:
    assert denies(".env", path) or denies("café.env", path)


def test_an_allowed_name_is_allowed_only_as_it_is_spelled() -> None:
    assert not allows("readme.md", "/w/README.md")


def test_a_bare_pattern_denies_beneath_every_working_directory() -> None:
    assert denies(".env", "/more/.env", "/more")
    assert denies("config/*.key", "/more/config/a.key", "/more")
    assert not denies(".env", "/others/.env", "/more")


def test_an_allowed_folder_is_not_its_neighbour_with_a_longer_name() -> None:
    assert not allows("//home/me/project/**", "/home/me/project-evil/x")


@pytest.mark.parametrize("pattern", ["*a" * 40 + "b", "**/" * 40 + "x", "?" * 500])
def test_a_hostile_pattern_ends(pattern: str) -> None:
    assert not denies(pattern, "/w/" + "a" * 2000)


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
    assert matches_rule_host(spec, host)


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

    assert host is None or not matches_rule_host(spec, host)


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
