"""Find the proxy for a server in HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, by curl's rules.

    url = find_proxy(address, environment)      # None: connect directly

On macOS and Windows, the system's settings are used if the environment names no proxy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from parley.models.endpoint import is_loopback_host
from parley.models.http.connection import Address

BRACKETS = str.maketrans("", "", "[]")


def find_proxy(address: Address, environment: Mapping[str, str]) -> str | None:
    """The URL of the proxy, as it is configured; never one for this machine, which a proxy cannot reach."""
    if is_loopback_host(address.host):
        return None
    proxies = {name.lower(): value for name, value in environment.items() if name.isupper() and value}
    if "REQUEST_METHOD" in environment:
        proxies.pop("http_proxy", None)  # in a CGI program, a client's Proxy header sets HTTP_PROXY
    proxies |= {name: value for name, value in environment.items() if name.islower()}
    if any(matches(address, rule.strip()) for rule in proxies.get("no_proxy", "").split(",")):
        return None
    url = proxies.get(f"{address.scheme}_proxy") or proxies.get("all_proxy") or find_system_proxy(address)
    return url if not url or "://" in url else f"http://{url}"


def find_system_proxy(address: Address) -> str | None:
    if sys.platform not in ("darwin", "win32"):
        return None
    from urllib.request import getproxies, proxy_bypass

    return None if proxy_bypass(address.host) else getproxies().get(address.scheme)


def matches(address: Address, rule: str) -> bool:
    """Whether an entry of NO_PROXY covers an address.

    An entry is `*`, a name (which covers its subdomains; `.name` covers only them), an IP address or a network. A
    scheme before it and a port after it restrict it.
    """
    if rule in ("", "*"):
        return bool(rule)
    scheme, _, rest = rule.lower().rpartition("://")
    if scheme not in ("", "all", address.scheme):
        return False
    if "/" in rest:
        return is_in_network(address.host, rest)
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
    elif rest.count(":") == 1:  # more than one: an IPv6 address
        host, _, port = rest.partition(":")
    if port.strip(":") not in ("", str(address.port)):
        return False
    own = address.host.lower()
    return own == host or own.endswith(host if host.startswith(".") else f".{host}")


def is_in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network.translate(BRACKETS), strict=False)
    except ValueError:  # a name, or an entry that is not a network
        return False
