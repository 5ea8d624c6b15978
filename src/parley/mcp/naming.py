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


def is_denied(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the bare names denies a tool: its own, its server's, or a glob."""
    return any(name == pattern or name.startswith(f"{pattern}__") or fnmatchcase(name, pattern) for pattern in patterns)
