"""What a model means by a call that is nearly right: its JSON, the name of its tool, its arguments. Pure.

    read_arguments('{"path": "a.txt",}')       -> {"path": "a.txt"}, ["removed a trailing comma"]
    read_arguments('{"path": "a.t')            raises NotRepairable: the string that starts at column 10 does not end
    find_name("functions.read_file", names)    -> "Read"
    find_name("create_issue", names)           -> "mcp__github__create_issue", if only one server has it
    fit_arguments({"filePath": "a.txt", "limit": "5"}, schema)
        -> {"file_path": "a.txt", "limit": 5}, ["filePath -> file_path", "limit: string -> integer"]

A repair never adds content: text that ends before its value does was cut off, and is refused. So is everything that
could mean two things; if two tools come into question, the model is asked. A key is only spelled as the schema spells
it: a word that the parameter does not have may mean another one. The built-in tools have a table of such words. A value
is changed only if nothing is lost: its new form means the same, and the old one does not match the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
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
            for value in decode(number[0], int | float):
                self.at = number.end()
                return value
            raise self._error("the number is out of range")
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


TOKENS = re.compile(r"<[|｜]?[^<>]*[|｜]?>.*", re.S)
"""Special tokens of a chat template, and what follows them."""
PREFIX = re.compile(r"^(?:functions?|tools?|default_api|api|assistant)(?:[.:/]|__)(?=\w)", re.I)
SUFFIX = re.compile(r"(?::\d+|\(\s*\))$")
QUOTING = " \t\r\n\"'`*"
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SHELL = frozenset({"command", "cmd", "shell", "terminal", "console"})
MEANT_ALONE = {"Bash": SHELL}
"""Words that mean a tool if a name has no others."""
FILLERS = SHELL | {"file", "tool", "run", "execute", "exec", "function", "call"}
"""Words that say nothing about which tool is meant."""
SERVER_MARK = "__"
MIN_TYPO_CHARS = 4
PARAMETERS = {
    "cmd": "command",
    "script": "command",
    "code": "command",
    "oldstr": "old_string",
    "oldtext": "old_string",
    "newstr": "new_string",
    "newtext": "new_string",
    "path": "file_path",
    "file": "file_path",
    "filename": "file_path",
    "text": "content",
    "filetext": "content",
    "data": "content",
    "body": "content",
    "regex": "pattern",
    "glob": "pattern",
    "uri": "url",
    "link": "url",
}
"""Other words for required parameters of built-in tools."""


def find_name(called: str, names: Mapping[str, str]) -> str | None:
    """The tool that a name stands for, by all names that tools have; None if there is none, or more than one."""
    clean = SUFFIX.sub("", TOKENS.sub("", called).strip(QUOTING)).strip(QUOTING)
    while clean not in names and (shorter := PREFIX.sub("", clean)) != clean:
        clean = shorter
    if clean in names:
        return names[clean]
    if not squeeze(clean):
        return None
    near = (is_without_server, is_same_but_for_fillers, is_typo)
    for steps in ((is_same,), near):
        if found := {tool for name, tool in names.items() if any(means(clean, name) for means in steps)}:
            return found.pop() if len(found) == 1 else None
    return None


def find_parameter(given: str, missing: Iterable[str], synonyms: Mapping[str, str]) -> str | None:
    """The parameter that a key stands for, among those without a value; None if there is none, or several."""
    found = [
        name for name in missing if squeeze(given) and (is_same(given, name) or synonyms.get(squeeze(given)) == name)
    ]
    return found[0] if len(found) == 1 else None


def squeeze(name: str) -> str:
    """A name without what differs between spellings."""
    return re.sub(r"[\W_]", "", name).lower()


def split_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORDS.findall(name))


def is_same(called: str, name: str) -> bool:
    return squeeze(called) == squeeze(name)


def is_without_server(called: str, name: str) -> bool:
    """Whether only the prefix of an MCP server is missing, or part of it."""
    parts = name.split(SERVER_MARK)
    return len(parts) > 2 and squeeze(called) in (squeeze("".join(parts[2:])), squeeze("".join(parts[1:])))


def is_same_but_for_fillers(called: str, name: str) -> bool:
    words, given = split_words(name) - FILLERS, split_words(called)
    if given & MEANT_ALONE.get(name, frozenset()) and not given - FILLERS:
        return True
    return bool(words) and SERVER_MARK not in name and given - FILLERS == words


def is_typo(called: str, name: str) -> bool:
    """Whether one letter is missing, doubled or too many, or two are swapped.

    A letter in place of another does not count: `get` is not `set`.
    """
    given, meant = squeeze(called), squeeze(name)
    if min(len(given), len(meant)) < MIN_TYPO_CHARS:
        return False
    if len(given) == len(meant):
        different = [at for at, (a, b) in enumerate(zip(given, meant, strict=True)) if a != b]
        return (
            len(different) == 2
            and different[1] == different[0] + 1
            and given[different[0]] == meant[different[1]]
            and given[different[1]] == meant[different[0]]
        )
    longer, shorter = max(given, meant, key=len), min(given, meant, key=len)
    is_one_more = len(longer) == len(shorter) + 1
    return is_one_more and any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))


WRAPPERS = ("arguments", "parameters", "input", "args", "kwargs")
INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.0+)?")
TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
ITEM = re.compile(r"[A-Za-z*][\w.*/-]*")
"""A text that is one item of a list, and not several."""
BOOLEANS = {"true": True, "false": False}


def fit_arguments(given: Json, schema: Json, *, is_built_in: bool = False) -> tuple[Json, list[str]]:
    """The arguments as the schema wants them, and what was changed; the same object if nothing was.

    The schema may be any object: a server that is not ours wrote it.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return given, []
    changes: list[str] = []
    value = given
    if len(given) == 1 and (key := next(iter(given))) in WRAPPERS and key not in properties:
        inner = given[key]
        if isinstance(inner, str):
            try:
                inner = read_arguments(inner)[0]
            except NotRepairable:
                return given, []
        if isinstance(inner, dict) and (schema.get("required") or properties.keys() & inner.keys()):
            value = inner
            changes.append(f"took the arguments out of {key!r}")
    try:
        value = Fitting(schema, changes, is_built_in=is_built_in).fit_object(value, schema, "")
    except RecursionError:
        return given, []
    return (value, changes) if changes else (given, [])


class Fitting:
    """One object, with the definitions that its schema refers to."""

    def __init__(self, root: Json, changes: list[str], *, is_built_in: bool) -> None:
        definitions = root.get("$defs") or root.get("definitions")
        self._definitions = definitions if isinstance(definitions, dict) else {}
        self._changes = changes
        self._synonyms = PARAMETERS if is_built_in else {}

    def fit_object(self, given: Json, schema: Json, place: str) -> Json:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return given
        required = schema["required"] if isinstance(schema.get("required"), list) else []
        given = self._rename(given, properties, required, place)
        fitted: Json = {}
        for key, value in given.items():
            options = self._list_options(properties.get(key))
            if value is None and options and key not in required and not accepts(value, options):
                self._changes.append(f"{place}{key}: left out null")
                continue
            fitted[key] = self._fit_value(value, options, f"{place}{key}")
        return fitted

    def _rename(self, given: Json, properties: Json, required: list[Any], place: str) -> Json:
        """The keys as the schema spells them. If two keys mean the same parameter, neither is changed."""
        unknown = [key for key in given if key not in properties]
        missing = [name for name in properties if name not in given]
        if not unknown or not missing:
            return given
        synonyms = {word: name for word, name in self._synonyms.items() if name in required}
        meant = {key: find_parameter(key, missing, synonyms) for key in unknown}
        names = list(meant.values())
        renamed = {key: name for key, name in meant.items() if name is not None and names.count(name) == 1}
        self._changes += [f"{place}{key} -> {name}" for key, name in renamed.items()]
        return {renamed.get(key, key): value for key, value in given.items()} if renamed else given

    def _list_options(self, schema: Any) -> list[Json]:
        """The schemas of which a value must match one. Each reference is followed once, as it may lead to itself."""
        options: list[Json] = []
        waiting, followed = [schema], set[str]()
        while waiting:
            if not isinstance(schema := waiting.pop(0), dict):
                continue
            reference, branches, kinds = (
                schema.get("$ref"),
                schema.get("anyOf") or schema.get("oneOf"),
                schema.get("type"),
            )
            if isinstance(reference, str):
                if reference not in followed:
                    followed.add(reference)
                    waiting.append(self._definitions.get(reference.rpartition("/")[2]))
            elif isinstance(branches, list):
                waiting += branches
            elif isinstance(kinds, list):
                options += ({**schema, "type": kind} for kind in kinds)
            else:
                options.append(schema)
        return options

    def _fit_value(self, value: Any, options: list[Json], place: str) -> Any:
        if not options or accepts(value, options):
            return self._fit_inside(value, options, place)
        found = [made for option in options for made in convert(value, option)]
        if not found or any(made != found[0] for made in found):
            return value
        if isinstance(value, str) and found[0] in [option.get("const") for option in options]:
            return found[0]
        self._changes.append(f"{place}: {TYPES.get(type(value))} -> {TYPES.get(type(found[0]))}")
        return self._fit_inside(found[0], options, place)

    def _fit_inside(self, value: Any, options: list[Json], place: str) -> Any:
        """Fit the values in an object or a list."""
        inner = [option for option in options if option.get("type") in ("object", "array")]
        if len(inner) != 1:
            return value
        if isinstance(value, dict):
            return self.fit_object(value, inner[0], f"{place}.")
        items = self._list_options(inner[0].get("items"))
        if isinstance(value, list) and items:
            return [self._fit_value(item, items, f"{place}[{number}]") for number, item in enumerate(value)]
        return value


def accepts(value: Any, options: list[Json]) -> bool:
    """Whether one of the schemas takes a value of this type."""
    return any(is_of_type(value, option) for option in options)


def is_of_type(value: Any, schema: Json) -> bool:
    if isinstance(allowed := schema.get("enum"), list):
        return value in allowed
    kind = schema.get("type")
    if kind is None or kind == TYPES.get(type(value)):
        return True
    return kind == "number" and type(value) is int


def convert(value: Any, schema: Json) -> Iterator[Any]:
    """The same value in the type of a schema, if that loses nothing."""
    kind = schema.get("type")
    if isinstance(allowed := schema.get("enum"), list):
        if isinstance(value, str):
            found = [item for item in allowed if str(item).lower() == value.strip().lower()]
            yield from found if len(found) == 1 else ()
        return
    match kind, value:
        case "integer", str() if INTEGER.fullmatch(value.strip()):
            yield int(value.strip().partition(".")[0])
        case "integer", float() if value.is_integer() and abs(value) < 2**53:
            yield int(value)
        case "number", str() if NUMBER.fullmatch(value.strip()):
            yield from decode(value.strip(), int | float)
        case "boolean", str() if value.strip().lower() in BOOLEANS:
            yield BOOLEANS[value.strip().lower()]
        case "string", bool() | int() | float():
            yield msgspec.json.encode(value).decode()
        case "string", [str(only)]:
            yield only
        case "array", str() if ITEM.fullmatch(value):
            yield [value]
        case (("array" | "object"), str()):
            yield from decode(value, list if kind == "array" else dict)
        case _:
            pass


def decode(text: str, kind: type | UnionType) -> Iterator[Any]:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    if isinstance(value, kind):
        yield value
