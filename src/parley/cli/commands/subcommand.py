"""Shared parts of commands of the form `parley NOUN COMMAND WORD…`: parsing and output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from parley.cli.stdio import warn, write
from parley.errors import UsageError
from parley.protocol.options import CliOptions, parse

Commands = Mapping[str, tuple[Callable[..., Iterable[bytes]], int, int]]
"""Each command's function, and the minimum and maximum number of its arguments."""


def wants_help(argv: Sequence[str]) -> bool:
    return not argv or "--help" in argv or "-h" in argv


def parse_subcommand(argv: list[str], noun: str, usage: str, commands: Commands) -> tuple[CliOptions, str, list[str]]:
    """Return the options, the command and its arguments; prints warnings. Raises UsageError."""
    parsed = parse(argv)
    for warning in parsed.warnings:
        warn(warning)
    name, *words = parsed.words or [""]
    if name not in commands:
        raise UsageError(f"unknown command `parley {noun} {name}` (choose from {', '.join(commands)})")
    _, minimum, maximum = commands[name]
    if not minimum <= len(words) <= maximum:
        expected = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        plural = "" if maximum == 1 else "s"
        raise UsageError(f"`parley {noun} {name}` takes {expected} argument{plural}, not {len(words)}\n{usage}")
    return parsed.options, name, words


def write_all(parts: Iterable[Any]) -> int:
    """Write the parts to stdout; returns the exit code. A closed pipe is not an error."""
    return 0 if all(write(part) for part in parts) else 1
