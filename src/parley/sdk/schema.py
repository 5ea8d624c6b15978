"""JSON Schemas of tools and of structured results, and values of their types.

The input of a tool: from type hints, from `{name: type}`, from a TypedDict, or given as a schema. The structured output
of a turn: a type of msgspec, a dataclass, a TypedDict or a pydantic model.

    schema_of(City)              the JSON Schema that the output must match
    parser_of(City)(value)       the value as a City
"""

from __future__ import annotations

import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from parley.protocol.base import Json
from parley.sdk.context import RunContext
from parley.sdk.errors import InvalidArguments, MessageParseError

if TYPE_CHECKING:
    from parley.sdk.types.messages import ResultMessage

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


def type_schema(kind: Any, nulls: bool = False) -> Json:
    """Return the JSON Schema of a type. An unsupported type becomes a string, which a model can always write.

    The official SDK drops None from a union; `nulls` keeps it.
    """
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        texts = [note for note in notes if isinstance(note, str)]
        return {**type_schema(inner, nulls), "description": texts[0]} if texts else type_schema(inner, nulls)
    if get_origin(kind) in (typing.Required, typing.NotRequired):
        return type_schema(get_args(kind)[0], nulls)
    if isinstance(kind, Mapping):
        return dict(kind)  # already a schema
    if kind in SIMPLE:
        return dict(SIMPLE[kind])
    if typing.is_typeddict(kind):
        return typed_dict_schema(kind, nulls)
    return generic_schema(kind, nulls)


def generic_schema(kind: Any, nulls: bool) -> Json:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        shapes = [type_schema(one, nulls) for one in inner if one is not type(None)]
        if nulls and type(None) in inner:
            shapes.append({"type": "null"})
        return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (list, set, frozenset) or (origin is tuple and inner[1:] in ((), (...,))):
        return {"type": "array", "items": type_schema(inner[0], nulls)} if inner else {"type": "array"}
    if origin in (dict, Mapping):
        return {"type": "object"}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if nulls or hasattr(kind, "__struct_fields__") or hasattr(kind, "__dataclass_fields__"):
        # Arguments of a plain function are converted to the types of its hints, so the schema must match them.
        with suppress(TypeError):
            return schema_of(kind)
    return {"type": "string"}


def typed_dict_schema(kind: Any, nulls: bool = False) -> Json:
    hints = get_type_hints(kind, include_extras=True)
    return object_schema(hints, [name for name, hint in hints.items() if is_required(kind, name, hint)], nulls)


def is_required(kind: Any, name: str, hint: Any) -> bool:
    """Check the hint first: with string annotations, `__required_keys__` misses Required and NotRequired."""
    origin = get_origin(hint)
    if origin in (typing.Required, typing.NotRequired):
        return origin is typing.Required
    return name in kind.__required_keys__


def object_schema(fields: Mapping[str, Any], required: list[str], nulls: bool = False) -> Json:
    return hoist_definitions(
        {
            "type": "object",
            "properties": {name: type_schema(kind, nulls) for name, kind in fields.items()},
            "required": required,
        }
    )


def hoist_definitions(schema: Json) -> Json:
    """Move the `$defs` of all parts to the root, where `$ref` looks for them.

    Raises TypeError if two different definitions have the same name.
    """
    found: Json = {}

    def without(part: Any) -> Any:
        if isinstance(part, list):
            return [without(one) for one in part]
        if not isinstance(part, dict):
            return part
        for name, one in part.get("$defs", {}).items():
            if found.setdefault(name, without(one)) != without(one):
                raise TypeError(f"two types in the tool's input are both named {name!r}; rename one")
        return {name: without(one) for name, one in part.items() if name != "$defs"}

    made: Json = without(schema)
    return {**made, "$defs": found} if found else made


def schema_of_input(given: Any) -> Json:
    """Return the JSON Schema for the `input_schema` of `@tool`. Raises TypeError."""
    if isinstance(given, Mapping):
        is_schema = "properties" in given and isinstance(given.get("type"), str)
        # In `{name: type}` the values are types, never strings, so these can only be JSON Schema keywords.
        if is_schema or given.get("type") == "object" or isinstance(given.get("$ref"), str):
            return dict(given)
        return object_schema(given, list(given))
    if typing.is_typeddict(given):
        return typed_dict_schema(given)
    if isinstance(given, type):
        return schema_of(given)
    raise TypeError(f"input_schema must be a dict, a TypedDict or another type, not {given!r}")


class ToolWarning(UserWarning):
    """A model will not know how to use a tool, because its function has no type hints or no docstring."""


def warn_about(function: Callable[..., Any], text: str) -> None:
    """Warn at the definition of a tool's function, once."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("<tool>", 1)
    seen = getattr(function, "__globals__", {}).setdefault("__warningregistry__", {})
    name = getattr(function, "__name__", type(function).__name__)
    warnings.warn_explicit(f"the tool {name} has {text}", ToolWarning, file, line, function.__module__, seen)


class Parameters:
    """The parameters of a plain function: their schema, and the conversion of JSON to their types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises TypeError for a function with parameters that cannot be passed by name."""
        hints = get_type_hints(function, include_extras=True)
        self.schema: Json = {"type": "object", "properties": {}, "required": []}
        self._types: dict[str, Any] = {}
        self._context: str | None = None
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(
                    f"parameter {name!r} of {function.__name__} cannot be passed by name; a tool takes named parameters"
                )
            if get_origin(hints.get(name)) is RunContext or hints.get(name) is RunContext:
                self._context = name
                continue
            if name not in hints:
                warn_about(function, f"no type hint for {name!r}: the model may send anything")
            kind = self._types[name] = hints.get(name, Any)
            described = type_schema(kind, nulls=True)
            if parameter.default is parameter.empty:
                self.schema["required"].append(name)
            default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
            if isinstance(default, str | int | float | bool):
                described = {**described, "default": default}
            self.schema["properties"][name] = described
        self.schema = hoist_definitions(self.schema)

    def values(self, arguments: Json) -> dict[str, Any]:
        """Convert arguments to the types of the parameters, and add the `RunContext`. Raises InvalidArguments."""
        if unknown := sorted(set(arguments) - set(self._types)):
            raise InvalidArguments(f"unknown parameter {unknown[0]!r} (the parameters are {list(self._types)})")
        if missing := [name for name in self.schema["required"] if name not in arguments]:
            raise InvalidArguments(f"parameter {missing[0]!r} is missing")
        values = {}
        for name, value in arguments.items():
            try:
                values[name] = msgspec.convert(value, strip_annotations(self._types[name]), dec_hook=build_value)
            except msgspec.ValidationError as exc:
                raise InvalidArguments(f"parameter {name!r}: {exc}") from None
        return values if self._context is None else {**values, self._context: RunContext.current()}


def build_value(kind: Any, value: Any) -> Any:
    """Convert a value to a type that msgspec does not support. Raises ValueError."""
    if is_pydantic(kind):
        return kind.model_validate(value)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"cannot convert JSON to {getattr(kind, '__name__', kind)}")


def strip_annotations(kind: Any) -> Any:
    """Return a type without `Annotated`: msgspec accepts only its own annotations."""
    return strip_annotations(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def schema_of(kind: Any) -> Json:
    """Return the JSON Schema of a type. Raises TypeError for a type that has none."""
    if is_pydantic(kind):
        found: Json = kind.model_json_schema()
        return found
    schema = msgspec.json.schema(kind)
    # Inline the root: some backends reject a schema whose root is a reference.
    if set(schema) == {"$ref", "$defs"}:
        root = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        refers = len(schema["$defs"]) > 1 or schema["$ref"] in str(root)
        return {**root, "$defs": schema["$defs"]} if refers else root
    return schema


def parser_of(kind: Any) -> Callable[[Any], Any]:
    if is_pydantic(kind):
        validate: Callable[[Any], Any] = kind.model_validate
        return validate
    return lambda value: msgspec.convert(value, kind)


def parse_output(result: ResultMessage | None, parser: Callable[[Any], Any] | None) -> Any:
    """Raises MessageParseError if the structured output is missing or does not match the schema."""
    if result is None:
        raise MessageParseError("the prompt was cancelled, so it has no result")
    if result.structured_output is None:
        reason = "; ".join(result.errors or []) or result.result or result.subtype
        raise MessageParseError(f"the result has no structured output: {reason}", result.raw)
    if parser is None:
        return result.structured_output
    try:
        return parser(result.structured_output)
    except (msgspec.ValidationError, ValueError) as exc:
        raise MessageParseError(f"the structured output does not match the schema: {exc}", result.raw) from exc
