"""Hosts of WebFetch rules: `domain:example.com` is that host, `domain:*.example.com` every host below it.

Hosts are compared label by label, never as text: `example.com.evil.org` and `notexample.com` are other hosts. A `*`
within a label stays within the label. Addresses are compared in their shortest form, in the rule and in the URL.
"""

from __future__ import annotations

import re

from parley.errors import ToolError
from parley.permissions.patterns import matches_text
from parley.workspace.url import is_numeric, is_public, read_address, read_url

LOCAL_NAME = re.compile(r"(.*\.)?(localhost|local|localdomain|internal|intranet|lan|home|corp|svc|private|home\.arpa)")
"""Names of this machine or of its local network."""


def parse_host(url: str) -> str | None:
    """The host of a URL, in lower case and without a final dot; None if the URL is not valid."""
    try:
        return read_url(url).host.lower().removesuffix(".")
    except ToolError:
        return None


def matches_host(spec: str, host: str) -> bool:
    """Whether the contents of a rule match a host."""
    pattern = spec.removeprefix("domain:").lower().removesuffix(".").strip("[]")
    if pattern == "*":
        return True
    pattern = read_address(pattern) or pattern
    if pattern.startswith("*."):
        labels = pattern[2:].split(".")
        inner = host.split(".")
        return len(inner) > len(labels) and labels_match(labels, inner[-len(labels) :])
    return labels_match(pattern.split("."), host.split("."))


def labels_match(pattern: list[str], labels: list[str]) -> bool:
    return len(pattern) == len(labels) and all(map(matches_text, pattern, labels))


def is_local(host: str) -> bool:
    """Whether a host is, or may be, local or private: by name, by address or by a number."""
    if is_numeric(host):
        try:
            return not is_public(host)
        except ValueError:
            return True
    return "." not in host or LOCAL_NAME.fullmatch(host) is not None
