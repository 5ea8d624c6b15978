"""Shared parts of commands of the form `parley NOUN COMMAND WORD…`: parsing and output.

    given = parse_words(argv, {"-s": "scope", "--scope": "scope", "--json": SWITCH})
    given.words, given.one("scope", "local"), given.has("--json")

Every such command prints its help without arguments, and refuses an unknown word with the nearest known one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from parley.cli.stdio import warn, write
from parley.errors import UnknownCommand, UsageError
from parley.protocol.base import Struct
from parley.protocol.options import CliOptions, parse

Commands = Mapping[str, tuple[Callable[..., Iterable[bytes]], int, int]]
"""Each command's function, and the minimum and maximum number of its arguments."""
SWITCH = ""
"""In a table of flags: a flag without a value."""


class GivenWords(Struct, frozen=True, kw_only=True):
    """The words and flags after a command."""

    words: tuple[str, ...]
    values: dict[str, list[str]]

    def has(self, flag: str) -> bool:
        return flag in self.values

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def one(self, name: str, default: str = "") -> str:
        return self.values[name][-1] if self.values.get(name) else default


def parse_words(
    argv: Sequence[str], flags: Mapping[str, str], more: Mapping[str, re.Pattern[str]] | None = None
) -> GivenWords:
    """Split words from flags. Raises UsageError.

    `flags` maps each flag to the name of its value, or to SWITCH. After a flag whose name is in `more`, the words that
    match its pattern are values too, as in `-e A=1 B=2`. Everything after `--` is a word.
    """
    words: list[str] = []
    values: dict[str, list[str]] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        flag, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-") or word == "-":
            words.append(word)
        elif flag not in flags:
            hint = find_nearest(flag, flags)
            raise UsageError(f"unknown option '{flag}'{hint}; put `--` before words that start with a dash")
        elif flags[flag] == SWITCH:
            values.setdefault(flag, [])
        else:
            if not is_joined and not rest:
                raise UsageError(f"option '{flag}' needs a value")
            values.setdefault(flags[flag], []).append(value if is_joined else rest.pop(0))
            pattern = (more or {}).get(flags[flag])
            while pattern is not None and rest and pattern.match(rest[0]):
                values[flags[flag]].append(rest.pop(0))
    return GivenWords(words=tuple(words), values=values)


def wants_help(argv: Sequence[str]) -> bool:
    """Whether there are no arguments, or the help is asked for before a `--`."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    return not argv or "--help" in own or "-h" in own or argv[0] == "help"


def find_nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)`, or nothing if no known word is similar."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


def unknown_command(noun: str, name: str, known: Iterable[str]) -> UnknownCommand:
    names = list(known)
    choices = f" (choose from {', '.join(names)})"
    return UnknownCommand(f"unknown command `parley {noun} {name}`{find_nearest(name, names)}{choices}")


def check_count(words: Sequence[str], minimum: int, maximum: int, usage: str) -> None:
    """Raises UsageError."""
    if not minimum <= len(words) <= maximum:
        raise UsageError(f"{'missing' if len(words) < minimum else 'too many'} arguments\n{usage}")


def parse_subcommand(argv: list[str], noun: str, usage: str, commands: Commands) -> tuple[CliOptions, str, list[str]]:
    """Return the options, the command and its arguments; prints warnings. Raises UsageError."""
    parsed = parse(argv)
    for warning in parsed.warnings:
        warn(warning)
    name, *words = parsed.words or [""]
    if name not in commands:
        raise unknown_command(noun, name, commands)
    _, minimum, maximum = commands[name]
    if not minimum <= len(words) <= maximum:
        expected = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        plural = "" if maximum == 1 else "s"
        raise UsageError(f"`parley {noun} {name}` takes {expected} argument{plural}, not {len(words)}\n{usage}")
    return parsed.options, name, words


def write_all(parts: Iterable[Any]) -> int:
    """Write the parts to stdout; returns the exit code. A closed pipe is not an error."""
    return 0 if all(write(part) for part in parts) else 1


def write_lines(lines: Iterable[str], code: int = 0) -> int:
    """Write lines to stdout; returns the exit code."""
    return code if write("".join(f"{line}\n" for line in lines).encode(errors="replace")) else 1


def write_json(value: Any, code: int = 0) -> int:
    """Write an indented JSON document to stdout; returns the exit code."""
    return code if write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n") else 1
