"""The names of what MCP servers offer: `mcp__server__tool`, in letters every model API takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from parley.mcp.base import PREFIX

LONGEST_NAME = 128
"""What the model API takes for the name of a tool."""


def normal(name: str) -> str:
    """A name with everything else than letters, digits, `_` and `-` as `_`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def qualified(server: str, name: str) -> str:
    """The name under which a tool or prompt of a server is known here."""
    return f"{PREFIX}{normal(server)}__{normal(name)}"


def title(name: str) -> str:
    """A name for people: `send_mail` is `Send mail`."""
    words = re.sub(r"[_-]+", " ", name).strip()
    return words[:1].upper() + words[1:] if words else name


def is_denied(server: str, name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the bare names denies a tool of a server: its own full name, its server's, or a glob."""
    own = (name, f"{PREFIX}{normal(server)}")
    return any(normal(pattern) in own or fnmatchcase(name, pattern) for pattern in patterns)


def find_clash(server: str, others: Iterable[str]) -> str | None:
    """The server among others whose tools cannot be told from this one's by their names.

    `a.b` and `a_b` are called the same, and so are the tool `b__c` of `a` and the tool `c` of `a__b`.
    """
    own = qualified(server, "")
    return next((other for other in others if clashes(own, qualified(other, ""))), None)


def clashes(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def clash_reason(server: str, other: str) -> str:
    """Why a server is refused whose name clashes with another's."""
    return (
        f"its tools could not be told apart from those of the server {other!r:.100}: their names begin with "
        f"{qualified(server, '')} and {qualified(other, '')}; give one of the two another name"
    )
