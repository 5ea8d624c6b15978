"""Structured results as values of a given type: msgspec, dataclass, TypedDict or pydantic.

schema_of(City)              the JSON Schema that the output must match
parser_of(City)(value)       the value as a City
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from parley.protocol.base import Json
from parley.sdk.errors import MessageParseError

if TYPE_CHECKING:
    from parley.sdk.types.messages import ResultMessage


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


def parse(result: ResultMessage | None, parser: Callable[[Any], Any] | None) -> Any:
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
