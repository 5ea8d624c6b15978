"""JSON Schemas of tools: from type hints, from `{name: type}`, from a TypedDict, or given as they are."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from parley.protocol.base import Json
from parley.sdk.structured import schema_of

SIMPLE: dict[Any, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    dict: {"type": "object"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    Any: {},
}


def of_type(kind: Any, nulls: bool = False) -> Json:
    """What a value of this type looks like. What is strange is a string: a model can always write one.

    The official SDK leaves None out of a union; `nulls` keeps it.
    """
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        words = [note for note in notes if isinstance(note, str)]
        return {**of_type(inner, nulls), "description": words[0]} if words else of_type(inner, nulls)
    if get_origin(kind) in (typing.Required, typing.NotRequired):
        return of_type(get_args(kind)[0], nulls)
    if kind in SIMPLE:
        return dict(SIMPLE[kind])
    if typing.is_typeddict(kind):
        return of_typed_dict(kind, nulls)
    return of_generic(kind, nulls)


def of_generic(kind: Any, nulls: bool) -> Json:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        shapes = [of_type(one, nulls) for one in inner if one is not type(None)]
        if nulls and type(None) in inner:
            shapes.append({"type": "null"})
        return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (list, tuple, set, frozenset):
        return {"type": "array", "items": of_type(inner[0], nulls)} if inner else {"type": "array"}
    if origin in (dict, Mapping):
        return {"type": "object"}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and (hasattr(kind, "__struct_fields__") or hasattr(kind, "__dataclass_fields__")):
        return schema_of(kind)
    return {"type": "string"}


def of_typed_dict(kind: Any, nulls: bool = False) -> Json:
    hints = get_type_hints(kind, include_extras=True)
    return of_fields(hints, [name for name, hint in hints.items() if is_required(kind, name, hint)], nulls)


def is_required(kind: Any, name: str, hint: Any) -> bool:
    """Where annotations are strings only the hint tells: `__required_keys__` does not look into them."""
    origin = get_origin(hint)
    if origin in (typing.Required, typing.NotRequired):
        return origin is typing.Required
    return name in kind.__required_keys__


def of_fields(fields: Mapping[str, Any], required: list[str], nulls: bool = False) -> Json:
    return {
        "type": "object",
        "properties": {name: of_type(kind, nulls) for name, kind in fields.items()},
        "required": required,
    }


def of_input(given: Any) -> Json:
    """The schema of a tool's input as the decorator takes it. Raises TypeError."""
    if isinstance(given, Mapping):
        if isinstance(given.get("type"), str) and "properties" in given:
            return dict(given)
        return of_fields(given, list(given))
    if typing.is_typeddict(given):
        return of_typed_dict(given)
    if isinstance(given, type):
        return schema_of(given)
    raise TypeError(f"input_schema must be a dict, a TypedDict or another type, not {given!r}")


class Parameters:
    """The parameters of a plain function: their schema, and the way from JSON to values."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises TypeError for what no JSON object can be handed to."""
        hints = get_type_hints(function, include_extras=True)
        self.schema: Json = {"type": "object", "properties": {}, "required": []}
        self._types: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"the parameter {name!r} of {function.__name__} cannot be given by its name")
            kind = self._types[name] = hints.get(name, Any)
            described = of_type(kind, nulls=True)
            if parameter.default is parameter.empty:
                self.schema["required"].append(name)
            default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
            if isinstance(default, str | int | float | bool):
                described = {**described, "default": default}
            self.schema["properties"][name] = described

    def values(self, arguments: Json) -> dict[str, Any]:
        """Raises ValueError for what does not fit."""
        if strange := sorted(set(arguments) - set(self._types)):
            raise ValueError(f"there is no parameter {strange[0]!r}")
        if missing := [name for name in self.schema["required"] if name not in arguments]:
            raise ValueError(f"the parameter {missing[0]!r} is missing")
        try:
            return {name: msgspec.convert(value, bare(self._types[name])) for name, value in arguments.items()}
        except msgspec.ValidationError as flaw:
            raise ValueError(str(flaw)) from None


def bare(kind: Any) -> Any:
    """A type without its notes: msgspec takes notes of its own kind only."""
    return bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind
