"""A URL is read once and strictly, and an address is judged as what it is."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from parley.errors import ToolError
from parley.workspace.url import Url, is_public, read_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://example.com", Url(scheme="http", host="example.com", port=80, target="/")),
        ("  HTTPS://Example.COM:8443/a?b=c#d ", Url(scheme="https", host="example.com", port=8443, target="/a?b=c")),
        ("http://[::1]:99/x", Url(scheme="http", host="::1", port=99, target="/x")),
        ("http://bücher.de/ä b", Url(scheme="http", host="xn--bcher-kva.de", port=80, target="/%C3%A4%20b")),
        ("http://a_b.example.com./%41", Url(scheme="http", host="a_b.example.com.", port=80, target="/%41")),
    ],
)
def test_a_url_comes_apart(text: str, url: Url) -> None:
    assert read_url(text) == url


@pytest.mark.parametrize("text", ["http://example.com/", "https://example.com:8443/a?b=c", "http://[::1]:99/x"])
def test_a_url_that_was_taken_apart_is_spelled_as_before(text: str) -> None:
    assert str(read_url(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/a",
        "file:///etc/passwd",
        "ftp://example.com/",
        "javascript:alert(1)",
        "http:///path",
        "http://",
        "http://user@example.com/",
        "http://user:word@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://example.com:port/",
        "http://example.com:99999/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://exa mple.com/",
        "http://exa%6dple.com/",
        "http://a..b/",
        "http://*.example.com/",
        f"http://{'a' * 300}.com/",
    ],
)
def test_what_is_not_a_plain_web_address_is_refused(text: str) -> None:
    with pytest.raises(ToolError):
        read_url(text)


@given(some.text(max_size=80))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    try:
        url = read_url("http://" + text)
    except ToolError:
        return
    assert str(url).isascii()
    assert not set(str(url)) & set(" \r\n\t\\")


@pytest.mark.parametrize(
    ("location", "onward"),
    [
        ("b", "https://example.com/a/b"),
        ("/b?x=1", "https://example.com/b?x=1"),
        ("//other.org/b", "https://other.org/b"),
        ("http://example.com/b", "http://example.com/b"),
    ],
)
def test_a_redirect_is_read_from_where_it_was_given(location: str, onward: str) -> None:
    assert str(read_url("https://example.com/a/x").joined(location)) == onward


@pytest.mark.parametrize(
    ("start", "onward", "elsewhere"),
    [
        ("http://example.com/", "https://example.com/b", False),
        ("https://example.com/", "https://example.com:8443/", False),
        ("https://example.com/", "http://example.com/", True),
        ("https://example.com/", "https://www.example.com/", True),
        ("https://example.com/", "https://example.com.evil.org/", True),
    ],
)
def test_another_host_or_a_plain_line_is_elsewhere(start: str, onward: str, elsewhere: bool) -> None:
    assert read_url(start).leads_elsewhere(read_url(onward)) is elsewhere


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::",
        "2002:a00:1::", "2001::1", "100::1", "64:ff9b:1::1", "::127.0.0.1",
    ],
)  # fmt: skip
def test_what_is_not_the_publics_is_known_in_every_clothing(address: str) -> None:
    assert is_public(address) is False


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_the_publics_addresses_are_known(address: str) -> None:
    assert is_public(address) is True


@given(some.ip_addresses(v=4))
def test_an_address_in_ipv6_clothes_is_judged_as_without(address: ipaddress.IPv4Address) -> None:
    assert is_public(f"::ffff:{address}") == is_public(str(address))
