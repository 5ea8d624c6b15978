"""Arguments that nearly match the schema of a tool: another spelling of a key, a number as a string. Pure.

    fit_arguments({"filePath": "a.txt", "limit": "5"}, schema)
        -> {"file_path": "a.txt", "limit": 5}, ["filePath -> file_path", "limit: string -> integer"]

A value is changed only if nothing is lost: its new form means the same, and the old one does not match the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from parley.engine.repair.lenient_json import NotRepairable, read_arguments
from parley.engine.repair.names import find_parameter
from parley.protocol.base import Json

WRAPPERS = ("arguments", "parameters", "input", "args", "kwargs")
INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.0+)?")
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
WORD = re.compile(r"[A-Za-z*][\w.*/-]*")
"""A text that is one item of a list, and not several."""
BOOLEANS = {"true": True, "false": False}


def fit_arguments(given: Json, schema: Json) -> tuple[Json, list[str]]:
    """The arguments as the schema wants them, and what was changed; the same object if nothing was."""
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
    value = Fitting(schema, changes).fit_object(value, schema, "")
    return (value, changes) if changes else (given, [])


class Fitting:
    """One object, with the definitions that its schema refers to."""

    def __init__(self, root: Json, changes: list[str]) -> None:
        self._definitions = root.get("$defs") or root.get("definitions") or {}
        self._changes = changes

    def fit_object(self, given: Json, schema: Json, place: str) -> Json:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return given
        given = self._rename(given, properties, schema.get("required") or [], place)
        fitted: Json = {}
        for key, value in given.items():
            options = list(self._list_options(properties.get(key)))
            if value is None and options and key not in (schema.get("required") or []) and not accepts(value, options):
                self._changes.append(f"{place}{key}: left out null")
                continue
            fitted[key] = self._fit_value(value, options, f"{place}{key}")
        return fitted

    def _rename(self, given: Json, properties: Json, required: list[str], place: str) -> Json:
        """The keys as the schema spells them. If two keys mean the same parameter, neither is changed."""
        unknown = [key for key in given if key not in properties]
        missing = [name for name in properties if name not in given]
        if not unknown or not missing:
            return given
        meant = {key: find_parameter(key, missing, [name for name in required if name in missing]) for key in unknown}
        names = list(meant.values())
        renamed = {key: name for key, name in meant.items() if name is not None and names.count(name) == 1}
        self._changes += [f"{place}{key} -> {name}" for key, name in renamed.items()]
        return {renamed.get(key, key): value for key, value in given.items()} if renamed else given

    def _list_options(self, schema: Any) -> Iterator[Json]:
        """The schemas of which a value must match one."""
        if not isinstance(schema, dict):
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield from self._list_options(self._definitions.get(reference.rpartition("/")[2]))
            return
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list):
            for branch in branches:
                yield from self._list_options(branch)
        elif isinstance(schema.get("type"), list):
            yield from ({**schema, "type": kind} for kind in schema["type"])
        else:
            yield schema

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
        items = list(self._list_options(inner[0].get("items")))
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
            yield msgspec.json.decode(value.strip())
        case "boolean", str() if value.strip().lower() in BOOLEANS:
            yield BOOLEANS[value.strip().lower()]
        case "string", bool() | int() | float():
            yield msgspec.json.encode(value).decode()
        case "string", [str(only)]:
            yield only
        case "array", str() if WORD.fullmatch(value):
            yield [value]
        case (("array" | "object"), str()):
            yield from decode(value, list if kind == "array" else dict)
        case _:
            pass


def decode(text: str, kind: type) -> Iterator[Any]:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    if isinstance(value, kind):
        yield value
