"""Which hosts a sandboxed command may reach. Pure: no I/O.

    policy.judge("pypi.org")                  # "allow", "deny", or "ask" if no pattern matches
    policy.refuses_address("pypi.org", "10.0.0.1")

A pattern is a host, `*.example.com` for every host below it but not itself, an address, or `*`. Hosts are compared in
lower case, without a final dot and label by label. A pattern that denies wins.

Names are judged first, and then every address that the name resolves to. A private address needs a pattern that names
it, or a pattern that names a host which is local by its name (`localhost`, `build.internal`). The owner of a public
name decides what it resolves to, so allowing the name does not open the local network.

See also: `proxy.py` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from parley.protocol.base import Struct
from parley.workspace.url import LONGEST_HOST, is_numeric, is_public, list_equal_addresses, read_address

Verdict = Literal["allow", "deny", "ask"]
NAME = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")
LOCAL_NAME = re.compile(r"(.*\.)?(localhost|local|localdomain|internal|intranet|lan|home|corp|private|home\.arpa)")


class InvalidHost(Exception):
    """The text is neither a host name nor an address."""


def read_host(text: str) -> str:
    """The host as it is judged and looked up: a name in lower case, or an address in its shortest form.

    Raises InvalidHost. Other spellings of an address (`2130706433`, `0x7f.1`, `127.1`) are refused, because resolvers
    differ in what they make of them.
    """
    host = text.lower().removesuffix(".")
    address = read_address(host)
    if address is not None and (":" in host or address == host):
        return address
    if len(host) > LONGEST_HOST or not NAME.fullmatch(host):
        raise InvalidHost(f"{text[:100]!r} is not a host name (letters, digits, dots and hyphens)")
    if is_numeric(host):
        raise InvalidHost(f"{text[:100]!r} is an address in an ambiguous form")
    return host


def read_pattern(text: str) -> str:
    """A pattern in the form that is compared. Raises InvalidHost."""
    pattern = text.strip().removeprefix("domain:")
    if pattern == "*":
        return pattern
    prefix, host = ("*.", pattern[2:]) if pattern.startswith("*.") else ("", pattern)
    try:
        ascii_text = host if host.isascii() else host[: LONGEST_HOST + 1].encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidHost(f"{text[:100]!r} is not a host name") from None
    if "*" not in ascii_text:
        # Resolvers differ in what they make of some spellings, so a pattern means all of them.
        return prefix + ((not prefix and read_address(ascii_text)) or read_host(ascii_text))
    # As in WebFetch rules, a star may also stand for a part of a label.
    read_host(ascii_text.replace("*", "x"))
    return prefix + ascii_text.lower().removesuffix(".")


def matches(pattern: str, host: str) -> bool:
    """Whether a pattern from `read_pattern` covers a host from `read_host`."""
    if pattern == "*":
        return True
    labels, found = pattern.split("."), host.split(".")
    if labels[0] == "*" and len(labels) > 1:
        labels = labels[1:]
        if len(found) <= len(labels) or read_address(host) is not None:
            return False
        found = found[-len(labels) :]
    return len(labels) == len(found) and all(map(matches_label, labels, found))


def matches_label(pattern: str, label: str) -> bool:
    if "*" not in pattern:
        return pattern == label
    return re.fullmatch("[^.]*".join(map(re.escape, pattern.split("*"))), label) is not None


class EgressPolicy(Struct, frozen=True, kw_only=True):
    """The patterns of a session, from `read_patterns`."""

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    is_public: Callable[[str], bool] = is_public

    def judge(self, host: str) -> Verdict:
        """Decide on a host from `read_host`."""
        if any(matches(pattern, name) for name in list_equal_addresses(host) for pattern in self.denied):
            return "deny"
        return "allow" if any(matches(pattern, host) for pattern in self.allowed) else "ask"

    def refuses_address(self, host: str, address: str, *, is_approved: bool = False) -> str:
        """Why an address of an allowed host must not be contacted; empty if it may.

        `is_approved`: a person was asked about the host, which names it as a pattern does.
        """
        address = read_address(address.partition("%")[0]) or address
        denied = [pattern for pattern in self.denied if pattern != "*"]
        if any(matches(pattern, name) for name in list_equal_addresses(address) for pattern in denied):
            return f"its address {address} is in deniedDomains"
        if self.is_public(address) or address in self.allowed:
            return ""
        if (is_approved or host in self.allowed) and (host == address or LOCAL_NAME.fullmatch(host)):
            return ""
        return f"its address {address} is not public; add the address to sandbox.network.allowedDomains to allow it"


def read_patterns(texts: Iterable[str], warn: Callable[[str], None]) -> tuple[str, ...]:
    """Patterns from settings. One that is not valid is reported and left out."""
    found = []
    for text in texts:
        try:
            found.append(read_pattern(text))
        except InvalidHost as exc:
            warn(f"sandbox.network: {exc}; the entry is ignored")
    return tuple(dict.fromkeys(found))
