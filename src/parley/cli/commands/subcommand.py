"""`parley NOUN COMMAND WORD…`: what such commands have in common, before their own work and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from parley.cli.stdio import complain, write
from parley.errors import UsageError
from parley.protocol.options import Options, parse

Commands = Mapping[str, tuple[Callable[..., Iterable[bytes]], int, int]]
"""What each command does, and how many words go with it at least and at most."""


def wants_help(argv: Sequence[str]) -> bool:
    return not argv or "--help" in argv or "-h" in argv


def chosen(argv: list[str], noun: str, usage: str, commands: Commands) -> tuple[Options, str, list[str]]:
    """The options, the command and its words; warnings are told. Raises UsageError."""
    parsed = parse(argv)
    for warning in parsed.warnings:
        complain(warning)
    name, *words = parsed.words or [""]
    if name not in commands:
        raise UsageError(f"there is no `parley {noun} {name}`; there are {', '.join(commands)}")
    _, least, most = commands[name]
    if not least <= len(words) <= most:
        raise UsageError(f"`parley {noun} {name}` was given {len(words)} words\n{usage}")
    return parsed.options, name, words


def handed_out(parts: Iterable[Any]) -> int:
    """Write the parts as they come; the exit code."""
    # Whoever does not read on has seen enough.
    return 0 if all(write(part) for part in parts) else 1
