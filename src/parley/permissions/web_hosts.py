"""Hosts of WebFetch rules: `domain:example.com` is that host, `domain:*.example.com` every one beneath it.

Hosts are compared label by label, never as text: `example.com.evil.org` and
`notexample.com` are other hosts. A `*` within a label stays within it.
"""

from __future__ import annotations

import re

from parley.errors import ToolError
from parley.permissions import wildcards
from parley.workspace.url import is_public, read_url

LOCAL_NAME = re.compile(r"(.*\.)?(localhost|local|localdomain|internal|intranet|lan|home|corp|svc|private|home\.arpa)")
"""Names that mean this machine or its neighbours."""
NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")


def parse_host(url: str) -> str | None:
    """The host that would be asked, in lower case and without a last dot; None if the URL cannot be read."""
    try:
        return read_url(url).host.lower().removesuffix(".")
    except ToolError:
        return None


def matches_host(spec: str, host: str) -> bool:
    """Whether the contents of a rule name a host."""
    wanted = spec.removeprefix("domain:").lower().removesuffix(".").strip("[]")
    if wanted == "*":
        return True
    if wanted.startswith("*."):
        labels = wanted[2:].split(".")
        inner = host.split(".")
        return len(inner) > len(labels) and labels_match(labels, inner[-len(labels) :])
    return labels_match(wanted.split("."), host.split("."))


def labels_match(wanted: list[str], labels: list[str]) -> bool:
    return len(wanted) == len(labels) and all(map(label_matches, wanted, labels))


def label_matches(wanted: str, label: str) -> bool:
    if "*" not in wanted:
        return wanted == label
    return wildcards.matches(wanted, label)


def is_local(host: str) -> bool:
    """Whether a host is, or could be, this machine or a neighbour: by name, by address or by a number."""
    if ":" in host or NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            return not is_public(host)
        except ValueError:
            return True  # 127.1, 0x7f000001 and the like: nobody writes a public host so
    return "." not in host or LOCAL_NAME.fullmatch(host) is not None
