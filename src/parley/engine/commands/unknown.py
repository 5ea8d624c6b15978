"""Refuse a command that does not exist. Loaded only then: it needs `difflib`."""

from __future__ import annotations

from collections.abc import Container, Sequence
from difflib import get_close_matches

from parley.engine.commands.local import LOCAL, TERMINAL
from parley.errors import ToolError


def refuse_unknown(name: str, templates: Container[str], names: Sequence[str]) -> None:
    """Raises ToolError, unless it is a command that is no template: a local one, or one of an MCP server.

    If that of a server was not expanded, its server failed, and that ends the turn before its first model call.
    `names` are the commands for users.
    """
    own = (*TERMINAL, *LOCAL)
    if name in names or name in own:
        return
    if name in templates:
        raise ToolError(f"/{name} is a skill for the model only (its file says `user-invocable: false`)")
    known = {other.lower(): other for other in (*own, *names)}
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    meant = f"did you mean /{known[near[0]]}?" if near else "/help lists the commands"
    raise ToolError(f"unknown command /{name} ({meant}); to send it as a prompt, put a word before it")
