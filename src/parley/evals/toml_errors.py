"""Errors in a TOML file that name the file, the line and the key, and the nearest known key.

value = convert_toml(text, "evals.toml", EvalSuite)
evals.toml:12: case[1].expect.fils: unknown key; did you mean 'files'?
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, get_args

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct
from parley.sdk.spelling import hint

KeyPath = tuple[str | int, ...]
"""`("case", 1, "prompt")` is the prompt of the second `[[case]]`."""
S = TypeVar("S", bound=Struct)
PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
NAME = rf"(?:{PART.pattern})(?:[ \t]*\.[ \t]*(?:{PART.pattern}))*"
TOKEN = re.compile(
    rf"^[ \t]*(?P<key>{NAME})[ \t]*=|(?P<header>^[ \t]*\[\[?[ \t]*{NAME}[ \t]*\]\]?[ \t]*(?=$|\#))"
    r'|"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]',
    re.DOTALL | re.MULTILINE,
)
"""What a TOML text consists of: keys, headers of tables, texts, comments and brackets."""
AT = re.compile(r"(?P<text>.*?) - at `\$(?P<path>.*)`", re.DOTALL)


def parse_toml(text: str, name: str) -> Json:
    """Raises UsageError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        place = re.search(r" \(at line (\d+), column (\d+)\)$", str(exc))
        line = int(place[1]) if place else text.count("\n") + 1
        raise UsageError(f"{name}:{line}: not valid TOML: {str(exc).split(' (at ')[0]}") from None


def convert_toml(text: str, name: str, kind: type[S]) -> S:
    """Parse a file. Raises UsageError."""
    return convert_data(parse_toml(text, name), text, name, kind)


def convert_data(data: Json, text: str, name: str, kind: type[S]) -> S:
    """The same from what a file contains. Raises UsageError."""
    for path, known in find_unknown_keys(data, kind):
        choices = [key for key in known if not key.startswith("@")]
        more = hint(str(path[-1]), choices) or f" (choose from {', '.join(choices)})"
        raise key_error(text, name, path, f"unknown key{more}")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as exc:
        found = AT.fullmatch(str(exc))
        problem, path = (found["text"], parse_path(found["path"])) if found else (str(exc), ())
        raise key_error(text, name, path, problem[:1].lower() + problem[1:]) from None


def key_error(text: str, name: str, path: KeyPath, problem: str) -> UsageError:
    """The error for what is wrong with a key."""
    line = KeyLines(text).find(path)
    return UsageError(f"{name}:{line}: {format_path(path)}: {problem}" if path else f"{name}: {problem}")


def find_unknown_keys(data: Any, kind: type[Struct], at: KeyPath = ()) -> Iterator[tuple[KeyPath, list[str]]]:
    """The keys that a structure does not have, each with the keys that it has."""
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in data.items():
        if key not in known:
            yield (*at, key), list(known)
        elif (inner := find_struct(known[key])) is not None:
            rows: Iterable[tuple[Any, Any]] = [(None, value)]
            if isinstance(value, list):
                rows = enumerate(value)
            elif getattr(known[key], "__origin__", None) is dict and isinstance(value, dict):
                rows = value.items()
            for index, row in rows:
                if isinstance(row, dict):
                    yield from find_unknown_keys(row, inner, (*at, key) if index is None else (*at, key, index))


def find_struct(kind: Any) -> type[Struct] | None:
    """The structure that a declared type contains."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    return next((found for part in get_args(kind) if (found := find_struct(part)) is not None), None)


def parse_path(text: str) -> KeyPath:
    """Read `.case[1].prompt`."""
    parts = re.findall(r"\[(\d+)\]|\.([^.\[\]]+)|\[\.\.\.\]", text)
    return tuple(int(index) if index else key for index, key in parts if index or key)


def format_path(path: KeyPath) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


class KeyLines:
    """Where the keys and tables of a TOML text are: the TOML reader does not report it. The text must be valid."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        for line, path in list_keys(text):
            self._lines.setdefault(path, line)

    def find(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest table around it that has one. A path may leave out a level before it."""
        for found, line in self._lines.items():
            if found[-1:] == path[-1:] and found[: len(path) - 1] == path[:-1]:
                return line
        lengths = range(len(path) - 1, 0, -1)
        return next((self._lines[path[:length]] for length in lengths if path[:length] in self._lines), 1)


def list_keys(text: str) -> Iterator[tuple[int, KeyPath]]:
    """The lines that start a table or set a key, and what they start or set; of inline tables in a list, too."""
    table: KeyPath = ()
    key: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    line, depth, index = 1, 0, 0
    for found in TOKEN.finditer(text):
        token = found[0].strip(" \t")
        if depth == 0 and found["header"]:
            table = ()
            for part in split_key(token):
                table = (*table, part)
                if table in counts:
                    table = (*table, counts[table])
            if token.startswith("[["):
                array = table[:-1] if isinstance(table[-1], int) else table
                counts[array] = counts.get(array, -1) + 1
                table = (*array, counts[array])
            yield line, table
        elif depth == 0 and found["key"]:
            key, index = (*table, *split_key(found["key"])), 0
            yield line, key
        elif token in ("[", "{"):
            if depth == 1 and token == "{":
                yield line, (*key, index)
                index += 1
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        line += found[0].count("\n")


def split_key(text: str) -> list[str]:
    return [part.strip("\"'") for part in PART.findall(text)]
