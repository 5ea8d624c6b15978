"""Parse the frontmatter of a Markdown file: `---`, YAML, `---`, and the text after it.

    head, body = split_frontmatter(text)      # head["tools"] == ["Read", "Grep"]

Agents, commands and skills are such files, written by hand. This parses the subset of YAML that is
common in them: `key: value`, nested by indentation; lists in brackets or with dashes; quotes; `|` and
`>` for longer texts; comments. Unlike in YAML, a value extends to the end of its line even if it
contains a colon, because `description: Use this when: ...` is common.
"""

from __future__ import annotations

import re
from typing import Any

from parley.protocol.base import Json

FENCE = re.compile(r"---[ \t]*\Z")
# Without backtracking: a line of many blanks takes no longer than any other.
KEY = re.compile(r"(\"[^\"]+\"[ \t]*+|'[^']+'[ \t]*+|\w[\w .\t-]*+):(?:[ \t]+(.*)|[ \t]*)\Z", re.DOTALL)
BLOCK = re.compile(r"([|>])([+-]?)\Z")
COMMENT = re.compile(r"(?:^|\s)#.*\Z")
WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?")
DEEPEST = 20


class FrontmatterError(Exception):
    """The frontmatter is invalid. The text says where."""


class HeadLine:
    """A line of the frontmatter with its number and indentation."""

    def __init__(self, number: int, line: str) -> None:
        self.number = number
        self.text = line.lstrip(" ")
        self.indent = len(line) - len(self.text)


def split_frontmatter(text: str) -> tuple[Json, str]:
    """Return the frontmatter (empty if missing) and the rest of the text. Raises FrontmatterError."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or not FENCE.match(lines[0]):
        return {}, text
    end = next((at for at, line in enumerate(lines[1:], 1) if FENCE.match(line)), None)
    if end is None:
        raise FrontmatterError("the frontmatter starts with --- but has no closing ---")
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in lines[1:end]):
        raise FrontmatterError("the frontmatter is indented with tabs; use spaces")
    found = FrontmatterParser(lines[1:end]).head()
    return found, "\n".join(lines[end + 1 :]).strip()


class FrontmatterParser:
    """A recursive-descent parser over the lines of the frontmatter."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0

    def head(self) -> Json:
        row = self._row()
        if row is None:
            return {}
        found = self._map(row.indent, 1)
        if (left := self._row()) is not None:
            raise FrontmatterError(f"line {left.number}: unexpected indentation: {left.text[:60]!r}")
        return found

    def _row(self) -> HeadLine | None:
        """Return the next line that is not empty or a comment."""
        while self._at < len(self._lines):
            row = HeadLine(self._at + 2, self._lines[self._at])
            if row.text.strip() and not row.text.startswith("#"):
                return row
            self._at += 1
        return None

    def _map(self, indent: int, depth: int) -> Json:
        if depth > DEEPEST:
            raise FrontmatterError(f"the frontmatter is nested more than {DEEPEST} levels deep")
        found: Json = {}
        while (row := self._row()) is not None and row.indent == indent:
            match = KEY.match(row.text.rstrip())
            if match is None:
                raise FrontmatterError(f"line {row.number}: expected `key: value`, not {row.text[:60]!r}")
            key, value = match[1].rstrip().strip("\"'"), match[2] or ""
            if key in found:
                raise FrontmatterError(f"line {row.number}: duplicate key {key!r}")
            self._at += 1
            found[key] = self._value(value, indent, depth, row.number)
        return found

    def _value(self, text: str, indent: int, depth: int, number: int) -> Any:
        if (block := BLOCK.match(text.strip())) is not None:
            return self._block(indent, folded=block[1] == ">")
        if COMMENT.sub("", text).strip():
            return scalar(self._whole(text, indent), number)
        row = self._row()
        if row is not None and is_item(row) and row.indent >= indent:
            return self._list(row.indent, depth + 1)
        if row is not None and row.indent > indent:
            return self._map(row.indent, depth + 1)
        return None

    def _whole(self, text: str, indent: int) -> str:
        """Join a value with its continuation lines, which are indented further."""
        while self._at < len(self._lines):
            row = HeadLine(0, self._lines[self._at])
            if not row.text.strip() or row.indent <= indent:
                break
            text = f"{text.rstrip()} {row.text}"
            self._at += 1
        return text

    def _list(self, indent: int, depth: int) -> list[Any]:
        found = []
        while (row := self._row()) is not None and row.indent == indent and is_item(row):
            rest = row.text[1:].strip()
            if rest and KEY.match(rest) and not rest.startswith(('"', "'", "[")):
                inner = row.text.index(rest[0], 1)
                self._lines[self._at] = " " * (indent + inner) + rest
                found.append(self._map(indent + inner, depth + 1))
            else:
                self._at += 1
                found.append(self._value(rest, indent, depth, row.number))
        return found

    def _block(self, indent: int, *, folded: bool) -> str:
        rows: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            rows.append(line)
            self._at += 1
        inner = min((len(row) - len(row.lstrip(" ")) for row in rows if row.strip()), default=0)
        text = "\n".join(row[inner:].rstrip() for row in rows).strip("\n")
        return re.sub(r"(?<!\n)\n(?!\n)", " ", text) if folded else text


def is_item(row: HeadLine) -> bool:
    return row.text.rstrip() == "-" or row.text.startswith("- ")


def scalar(text: str, number: int) -> Any:
    """Parse one value. Raises FrontmatterError."""
    text = text.strip()
    if text[0] in "\"'":
        end = text.find(text[0], 1)
        while end > 0 and (text[end - 1] == "\\" if text[0] == '"' else text[end + 1 : end + 2] == "'"):
            end = text.find(text[0], end + (1 if text[0] == '"' else 2))
        if end < 0 or COMMENT.sub("", text[end + 1 :]).strip():
            raise FrontmatterError(f"line {number}: a quote is not closed, or text follows the closing quote")
        inner = text[1:end]
        return unescape(inner) if text[0] == '"' else inner.replace("''", "'")
    text = COMMENT.sub("", text).strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise FrontmatterError(f"line {number}: a list has no closing bracket")
        return [scalar(item, number) for item in split_items(text[1:-1]) if item.strip()]
    if text.startswith("{"):
        raise FrontmatterError(f"line {number}: braces are not supported; write one key per line")
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def unescape(text: str) -> str:
    escapes = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(.)", lambda match: escapes.get(match[1], match[1]), text)


def split_items(text: str) -> list[str]:
    """Split at commas that are not inside quotes or brackets."""
    found, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and not found[-1].strip():
            quote = letter
        elif letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        if letter == "," and not quote and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def parse_names(value: Any) -> list[str]:
    """Return a list of names, which may be written without brackets: `a, b(c, d)`."""
    if isinstance(value, str):
        return [item.strip() for item in split_items(value) if item.strip()]
    return [str(item) for item in value] if isinstance(value, list) else []
