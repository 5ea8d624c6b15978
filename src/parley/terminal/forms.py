"""The fields of an elicitation form: what to ask, and how an answer is read. Pure.

MCP forms are flat: strings, numbers, booleans, choices, and lists of choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parley.protocol.base import Json, Struct

TYPES = ("string", "number", "integer", "boolean", "array")
YES, NO = ("y", "yes", "true"), ("n", "no", "false")


class Field(Struct, frozen=True, kw_only=True):
    """One field of a form."""

    name: str
    schema: Json
    is_required: bool
    choices: tuple[tuple[Any, str], ...] = ()
    """Value and label of each choice."""

    def describe(self) -> str:
        """What is asked, with its choices."""
        schema = self.schema
        parts = [str(schema[key]) for key in ("title", "description") if isinstance(schema.get(key), str)]
        notes = ["required" if self.is_required else "optional"]
        if schema.get("type") == "boolean":
            notes.append("yes or no")
        elif self.choices:
            notes.append("numbers" if schema.get("type") == "array" else "a number")
        elif schema.get("type") != "string":
            notes.append(f"{schema.get('type')}")
        if "default" in schema:
            notes.append(f"default: {schema['default']}")
        listed = [f"  {number}. {label}" for number, (_, label) in enumerate(self.choices, 1)]
        return "\n".join([f"{' – '.join(parts) or self.name} ({', '.join(notes)})", *listed])

    def parse(self, text: str) -> Any:
        """The value of an answer; None to leave the field out. Raises ValueError."""
        if not text:
            if "default" in self.schema:
                return self.schema["default"]
            if self.is_required:
                raise ValueError("a value is required (Esc declines)")
            return None
        kind = self.schema.get("type")
        if kind == "array":
            values = [self._pick(word) for word in text.replace(",", " ").split()]
            self._check_range(len(values), "minItems", "maxItems", "choices")
            return values
        if self.choices:
            return self._pick(text)
        if kind == "boolean":
            if text.lower() not in YES + NO:
                raise ValueError("answer yes or no")
            return text.lower() in YES
        if kind in ("number", "integer"):
            return self._parse_number(text, is_integer=kind == "integer")
        self._check_range(len(text), "minLength", "maxLength", "characters")
        return text

    def _pick(self, text: str) -> Any:
        if text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1][0]
        found = [value for value, label in self.choices if text in (value, label)]
        if not found:
            raise ValueError(f"choose a number from 1 to {len(self.choices)}")
        return found[0]

    def _parse_number(self, text: str, *, is_integer: bool) -> float:
        try:
            number = int(text) if is_integer else float(text)
        except ValueError:
            raise ValueError("expected a whole number" if is_integer else "expected a number") from None
        self._check_range(number, "minimum", "maximum", "")
        return number

    def _check_range(self, value: float, low_key: str, high_key: str, unit: str) -> None:
        low, high = self.schema.get(low_key), self.schema.get(high_key)
        if isinstance(low, int | float) and value < low:
            raise ValueError(f"expected at least {low} {unit}".rstrip())
        if isinstance(high, int | float) and value > high:
            raise ValueError(f"expected at most {high} {unit}".rstrip())


def read_fields(schema: Json, order: Sequence[str]) -> list[Field] | None:
    """The fields of a form in their order; None if one cannot be asked for on a line."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    names = [*(name for name in order if name in properties), *(name for name in properties if name not in order)]
    fields = []
    for name in names:
        entry = properties[name]
        if not isinstance(entry, dict) or entry.get("type", "string") not in TYPES:
            return None
        kind = entry.get("type", "string")
        choices = list_choices(entry.get("items") if kind == "array" else entry)
        if kind == "array" and not choices:
            return None
        is_required = isinstance(required, list) and name in required
        schema = {**entry, "type": kind}
        fields.append(Field(name=name, schema=schema, is_required=is_required, choices=choices))
    return fields


def list_choices(schema: Any) -> tuple[tuple[Any, str], ...]:
    """`enum` with `enumNames`, or `oneOf` and `anyOf` with `const` and `title`."""
    if not isinstance(schema, dict):
        return ()
    if isinstance(values := schema.get("enum"), list):
        names = schema.get("enumNames")
        labels = names if isinstance(names, list) and len(names) == len(values) else values
        return tuple((value, str(label)) for value, label in zip(values, labels, strict=True))
    entries = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(entries, list):
        return ()
    return tuple(
        (entry["const"], str(entry.get("title", entry["const"])))
        for entry in entries
        if isinstance(entry, dict) and "const" in entry
    )
