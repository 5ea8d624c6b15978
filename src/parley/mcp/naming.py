"""Names of MCP tools and prompts: `mcp__server__tool`, in characters that every model API accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from parley.mcp.base import PREFIX

MAX_NAME_CHARS = 128
"""The model API's limit for tool names."""


def normalize(name: str) -> str:
    """Replace all characters except letters, digits, `_` and `-` by `_`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def qualify(server: str, name: str) -> str:
    """The full name of a server's tool or prompt."""
    return f"{PREFIX}{normalize(server)}__{normalize(name)}"


def title(name: str) -> str:
    """A display name: `send_mail` becomes `Send mail`."""
    words = re.sub(r"[_-]+", " ", name).strip()
    return words[:1].upper() + words[1:] if words else name


def is_denied(server: str, name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern denies a tool: its full name, its server's name, or a glob."""
    own = (name, f"{PREFIX}{normalize(server)}")
    return any(normalize(pattern) in own or fnmatchcase(name, pattern) for pattern in patterns)


def find_clash(server: str, others: Iterable[str]) -> str | None:
    """The other server whose tool names could be confused with this one's.

    `a.b` and `a_b` get the same prefix, and so do the tool `b__c` of `a` and the tool `c` of `a__b`.
    """
    own = qualify(server, "")
    return next((other for other in others if clashes(own, qualify(other, ""))), None)


def clashes(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def clash_reason(server: str, other: str) -> str:
    """Why a server with a clashing name is rejected."""
    return (
        f"its tool names would clash with those of the server {other!r:.100} (prefixes "
        f"{qualify(server, '')} and {qualify(other, '')}); rename one of the two servers"
    )
