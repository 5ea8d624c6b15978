"""The names of what MCP servers offer: `mcp__server__tool`, in letters every model API takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from parley.mcp.base import PREFIX

MAX_NAME_CHARS = 128
"""What the model API takes for the name of a tool."""


def normalize(name: str) -> str:
    """A name with everything else than letters, digits, `_` and `-` as `_`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def qualify(server: str, name: str) -> str:
    """The name under which a tool or prompt of a server is known here."""
    return f"{PREFIX}{normalize(server)}__{normalize(name)}"


def title(name: str) -> str:
    """A name for people: `send_mail` is `Send mail`."""
    words = re.sub(r"[_-]+", " ", name).strip()
    return words[:1].upper() + words[1:] if words else name


def is_denied(server: str, name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the bare names denies a tool of a server: its own full name, its server's, or a glob."""
    own = (name, f"{PREFIX}{normalize(server)}")
    return any(normalize(pattern) in own or fnmatchcase(name, pattern) for pattern in patterns)


def find_clash(server: str, others: Iterable[str]) -> str | None:
    """The server among others whose tools cannot be told from this one's by their names.

    `a.b` and `a_b` are called the same, and so are the tool `b__c` of `a` and the tool `c` of `a__b`.
    """
    own = qualify(server, "")
    return next((other for other in others if clashes(own, qualify(other, ""))), None)


def clashes(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def clash_reason(server: str, other: str) -> str:
    """Why a server is refused whose name clashes with another's."""
    return (
        f"its tools could not be told apart from those of the server {other!r:.100}: their names begin with "
        f"{qualify(server, '')} and {qualify(other, '')}; give one of the two another name"
    )
