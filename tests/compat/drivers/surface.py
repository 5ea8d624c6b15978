"""The public names of a module, and what each of them is: `python surface.py MODULE [NAME ...]`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from typing import Any, NotRequired, Required, get_origin, get_type_hints, is_typeddict


def fields(kind: Any) -> list[list[Any]]:
    missing = dataclasses.MISSING
    return [
        [one.name, one.default is missing and one.default_factory is missing]
        for one in dataclasses.fields(kind)
        if one.init
    ]


def parameters(function: Any) -> list[list[Any]]:
    if isinstance(function, type) and "__init__" not in function.__dict__:
        return []
    listed = inspect.signature(function).parameters.values()
    return [[one.name, one.default is one.empty] for one in listed if one.name != "self"]


def methods(kind: type) -> dict[str, Any]:
    return {
        name: parameters(value)
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def required(kind: Any) -> list[str]:
    """The class itself is mistaken where annotations are text."""
    hints = get_type_hints(kind, include_extras=True)
    said = {name: get_origin(hint) for name, hint in hints.items() if get_origin(hint) in (Required, NotRequired)}
    return sorted(name for name in hints if said.get(name, name in kind.__required_keys__) in (Required, True))


def described(value: Any) -> dict[str, Any]:
    if is_typeddict(value):
        return {"is": "typed dict", "keys": sorted(get_type_hints(value)), "required": required(value)}
    if isinstance(value, type) and issubclass(value, BaseException):
        return {"is": "error", "under": [one.__name__ for one in value.__mro__], "given": parameters(value)}
    if dataclasses.is_dataclass(value):
        return {"is": "dataclass", "fields": fields(value), "methods": methods(value)}  # type: ignore[arg-type]  # a class
    if isinstance(value, type):
        return {"is": "class", "methods": methods(value)}
    if inspect.isfunction(value):
        return {"is": "function", "given": parameters(value), "async": inspect.iscoroutinefunction(value)}
    return {"is": "alias"}


def main(module: str, names: list[str]) -> None:
    found = importlib.import_module(module)
    json.dump({name: described(getattr(found, name)) for name in names or found.__all__}, sys.stdout)


main(sys.argv[1], sys.argv[2:])
