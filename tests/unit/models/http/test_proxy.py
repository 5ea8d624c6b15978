"""Which proxy is used for which server."""

from __future__ import annotations

import pytest

from parley.models.http.connection import Address
from parley.models.http.proxy import find_proxy

PROXIES = {"HTTPS_PROXY": "gate:3128", "HTTP_PROXY": "http://plain:80"}


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://far.example/v1", "http://gate:3128"),
        ("http://far.example/v1", "http://plain:80"),
        ("http://localhost:1", None),
        ("http://127.0.0.2:1", None),
        ("http://[::1]:1", None),
    ],
)
def test_a_proxy_is_for_other_machines(url: str, proxy: str | None) -> None:
    assert find_proxy(Address.parse(url), PROXIES) == proxy


@pytest.mark.parametrize(
    ("rule", "is_direct"),
    [
        ("*", True),
        ("", False),
        ("model.example", True),
        ("MODEL.Example", True),
        ("example", True),
        (".example", True),
        (".model.example", False),
        ("odel.example", False),
        ("other.example, model.example", True),
        ("model.example:8443", True),
        ("model.example:443", False),
        ("https://model.example", True),
        ("http://model.example", False),
        ("all://model.example", True),
        ("10.0.0.0/8", False),
        ("not/a/network", False),
    ],
)
def test_no_proxy_names_servers_that_are_reached_directly(rule: str, is_direct: bool) -> None:
    address = Address.parse("https://model.example:8443/v1")

    assert (find_proxy(address, PROXIES | {"NO_PROXY": rule}) is None) is is_direct


@pytest.mark.parametrize("rule", ["10.1.2.3", "10.0.0.0/8", "10.1.2.3:443"])
def test_no_proxy_names_addresses_and_networks(rule: str) -> None:
    assert find_proxy(Address.parse("https://10.1.2.3"), PROXIES | {"no_proxy": rule}) is None


@pytest.mark.parametrize("rule", ["fd00::1", "[fd00::1]", "[fd00::1]:443", "fd00::/8", "[fd00::]/8"])
def test_no_proxy_names_addresses_of_version_6(rule: str) -> None:
    assert find_proxy(Address.parse("https://[fd00::1]/"), PROXIES | {"no_proxy": rule}) is None


def test_lower_case_wins_and_all_proxy_comes_last() -> None:
    far = Address.parse("https://far.example")

    assert find_proxy(far, {"ALL_PROXY": "http://all:1"}) == "http://all:1"
    assert find_proxy(far, {"ALL_PROXY": "http://all:1", "HTTPS_PROXY": "http://upper:1"}) == "http://upper:1"
    assert find_proxy(far, {"https_proxy": "http://lower:1", "HTTPS_PROXY": "http://upper:1"}) == "http://lower:1"


def test_a_cgi_program_ignores_the_variable_that_a_client_can_set() -> None:
    far, environment = Address.parse("http://far.example"), {"REQUEST_METHOD": "GET", "HTTP_PROXY": "http://evil:1"}

    assert find_proxy(far, environment) is None
    assert find_proxy(far, environment | {"http_proxy": "http://own:1"}) == "http://own:1"
