"""The parts of a URL."""

from __future__ import annotations

import pytest

from parley.models.http.connection import Address


@pytest.mark.parametrize(
    ("url", "address", "authority"),
    [
        ("http://h", Address("http", "h", 80, "/"), "h"),
        ("HTTPS://h/v1?a=b#c", Address("https", "h", 443, "/v1?a=b"), "h"),
        ("https://h:8443/v1", Address("https", "h", 8443, "/v1"), "h:8443"),
        ("http://h:443?q", Address("http", "h", 443, "/?q"), "h:443"),
        ("http://[::1]:80/", Address("http", "::1", 80, "/"), "[::1]"),
        ("http://[::1]:1/", Address("http", "::1", 1, "/"), "[::1]:1"),
        ("http://me:se%40cret@h/", Address("http", "h", 80, "/", "me:se%40cret"), "h"),
        ("http://a@b@h/", Address("http", "h", 80, "/", "a@b"), "h"),
        (
            "http://müller.example/ä b",
            Address("http", "xn--mller-kva.example", 80, "/%C3%A4%20b"),
            "xn--mller-kva.example",
        ),
        ("http://h/a%20b", Address("http", "h", 80, "/a%20b"), "h"),
    ],
)
def test_a_url_in_its_parts(url: str, address: Address, authority: str) -> None:
    assert Address.parse(url) == address
    assert Address.parse(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "ftp://h",
        "http://",
        "http:///x",
        "http://h:0",
        "http://h:65536",
        "http://h:port",
        "http://[::1",
        "http://a\\b/",
    ],
)
def test_what_is_not_a_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        Address.parse(url)


def test_a_line_break_cannot_leave_the_target() -> None:
    assert Address.parse("http://h/x y\r\nevil: 1").target == "/x%20y%0D%0Aevil:%201"


def test_the_user_in_a_url_becomes_basic_authentication() -> None:
    assert Address.parse("http://me:se%40cret@h/").basic_auth == "Basic bWU6c2VAY3JldA=="
    assert Address.parse("http://h/").basic_auth is None
