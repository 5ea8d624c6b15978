"""JSON as models write it: trailing commas, single quotes, code fences, line breaks in strings.

    read_arguments('{"path": "a.txt",}')      -> {"path": "a.txt"}, ["removed a trailing comma"]
    read_arguments('{"path": "a.t')           raises NotRepairable: the string that starts at column 10 does not end

A repair never adds content: text that ends before its value does was cut off, and is refused. So is everything that
could mean two things. Pure.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from parley.protocol.base import Json

MAX_LEVELS = 100
MAX_ENCODINGS = 3
"""How often an object may be encoded as a string."""
EXCERPT_CHARS = 24
LITERALS = {"true": True, "false": False, "null": None}
OTHER_LITERALS = {"True": True, "False": False, "None": None, "undefined": None}
QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d"}
ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
SPACE = re.compile(r"[\s\ufeff\u200b]*")
LABEL = re.compile(r"\s*[A-Za-z][\w ,.']{0,60}[:=]\s*(?=\{)")
"""Words before an object, such as `arguments:`."""
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
WORD = re.compile(r"[A-Za-z_][\w-]*")
HEX = re.compile(r"[0-9a-fA-F]{4}")
FENCE = re.compile(r"\s*```[\w-]*[ \t]*\n?(.*?)(?:```)?\s*", re.S)
TAIL = re.compile(r"[\s,;]*(?:\s|</[\w:.-]+>|<\|[^|<>]*\|>|</s>)*")
"""What may follow: the end of a tag, or special tokens of a chat template."""


class NotRepairable(Exception):
    """The text is not JSON, and it is not clear what was meant."""

    def __init__(self, cause: str, text: str, at: int) -> None:
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        excerpt = text[max(0, at - EXCERPT_CHARS) : at + EXCERPT_CHARS]
        super().__init__(f"{cause} at line {line}, column {column}, near {excerpt!r}")


def read_arguments(text: str) -> tuple[Json, list[str]]:
    """The object that a text means, and what was changed. Raises NotRepairable."""
    changes: dict[str, None] = {}
    value: Any = text
    for encoding in range(MAX_ENCODINGS):
        text = value
        if (fenced := FENCE.fullmatch(text)) is not None:
            changes["removed a code fence"] = None
            text = fenced[1]
        reader = LenientReader(text)
        value = reader.read_whole()
        changes |= reader.changes
        if encoding:
            changes["decoded JSON inside a string"] = None
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            changes["took the object out of a list"] = None
            value = value[0]
        if value is None:
            changes["took null as no arguments"] = None
            value = {}
        if not isinstance(value, str):
            break
    if not isinstance(value, dict):
        raise NotRepairable("expected an object", text, 0)
    return value, list(changes)


class LenientReader:
    """Reads values from a text, from `at` on."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at
        self.changes: dict[str, None] = {}
        self._level = 0

    def read_whole(self) -> Any:
        """The only value of the text. Raises NotRepairable."""
        if (label := LABEL.match(self.text)) is not None:
            self.changes["removed words before the object"] = None
            self.at = label.end()
        value = self.read_value()
        self._skip_space()
        end = self.at
        if self.text.startswith(("{", "["), end) and self.read_value() == value:
            self.changes["removed a repetition"] = None
            end = self.at
        if TAIL.fullmatch(self.text, end) is None:
            raise NotRepairable("unexpected text after the value", self.text, end)
        if self.text[end:].strip():
            self.changes["removed tags after the value"] = None
        return value

    def read_value(self) -> Any:
        """Raises NotRepairable."""
        self._skip_space()
        first = self._peek()
        if first in ("{", "["):
            self._level += 1
            if self._level > MAX_LEVELS:
                raise self._error("the JSON is nested too deeply")
            value = self._read_object() if first == "{" else self._read_list()
            self._level -= 1
            return value
        if first in QUOTES:
            return self._read_string()
        if (number := NUMBER.match(self.text, self.at)) is not None:
            self.at = number.end()
            return msgspec.json.decode(number[0])
        if (word := WORD.match(self.text, self.at)) is not None and word[0] in (known := LITERALS | OTHER_LITERALS):
            if word[0] in OTHER_LITERALS:
                self.changes[f"read {word[0]} as JSON"] = None
            self.at = word.end()
            return known[word[0]]
        raise self._error("expected a value" if first else "the JSON ends too early")

    def _read_object(self) -> Json:
        found: Json = {}
        self.at += 1
        while not self._ends_with("}", has_items=bool(found)):
            if self._peek() in QUOTES:
                key = self._read_string()
            elif (word := WORD.match(self.text, self.at)) is not None:
                self.changes["added quotes around a key"] = None
                key, self.at = word[0], word.end()
            else:
                raise self._error("expected a key in quotes")
            self._skip_space()
            if self._peek() != ":":
                raise self._error("expected a colon")
            self.at += 1
            if key in found:
                raise self._error(f"the key {key!r:.50} is given twice,")
            found[key] = self.read_value()
        return found

    def _read_list(self) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while not self._ends_with("]", has_items=bool(found)):
            found.append(self.read_value())
        return found

    def _ends_with(self, end: str, *, has_items: bool) -> bool:
        """Move past the comma before the next item, or past the end. Raises NotRepairable."""
        self._skip_space()
        has_comma = has_items and self._peek() == ","
        if has_comma:
            self.at += 1
            self._skip_space()
        if not self._peek():
            raise self._error("the JSON ends too early")
        if self._peek() != end:
            if has_items and not has_comma:
                raise self._error(f"expected a comma or {end!r}")
            return False
        if has_comma:
            self.changes["removed a trailing comma"] = None
        self.at += 1
        return True

    def _read_string(self) -> str:
        """A string ends at its first closing quote. What follows shows whether that was meant."""
        start, end = self.at, QUOTES[self.text[self.at]]
        if end != '"':
            self.changes["changed the quotes"] = None
        self.at += 1
        pieces: list[str] = []
        while (char := self._peek()) != end:
            if not char:
                raise NotRepairable("the JSON ends inside the string that starts", self.text, start)
            self.at += 1
            if char == "\\":
                char = self._read_escape()
            elif char < " ":
                self.changes["escaped control characters in a string"] = None
            pieces.append(char)
        self.at += 1
        return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _read_escape(self) -> str:
        char = self._peek()
        self.at += 1
        if char == "u" and (code := HEX.match(self.text, self.at)) is not None:
            self.at = code.end()
            return chr(int(code[0], 16))
        if char not in ESCAPES:
            self.changes["escaped a backslash"] = None
            return f"\\{char}"
        if char == "'":
            self.changes["removed a backslash before a quote"] = None
        return ESCAPES[char]

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip_space(self) -> None:
        while True:
            start, self.at = self.at, SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.text[start : self.at].strip(" \t\r\n"):
                self.changes["removed unusual spaces"] = None
            if (comment := COMMENT.match(self.text, self.at)) is None:
                return
            self.changes["removed a comment"] = None
            self.at = comment.end()

    def _error(self, cause: str) -> NotRepairable:
        return NotRepairable(cause, self.text, self.at)
