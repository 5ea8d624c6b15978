"""Modules and dataclasses that cost nothing until they are used, so that `from parley import Client, Options` is fast.

    if TYPE_CHECKING:
        from parley.protocol.messages import requests as wire
    else:
        wire = DeferredModule("parley.protocol.messages.requests")      imported when `wire.Interrupt` is first used

See also: `parley.__getattr__`, which loads the public names in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class DeferredModule:
    """Stands for a module, and imports it when an attribute is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        from importlib import import_module

        value = self.__dict__[name] = getattr(import_module(self._name), name)
        return value


class DeferredField:
    """`dataclasses.field(default_factory=...)` of a `deferred_dataclass`."""

    def __init__(self, default_factory: Callable[[], object]) -> None:
        self.default_factory = default_factory


class DeferredAttribute:
    """An attribute that the dataclass machinery makes; the first use of any of them makes all."""

    def __init__(self, name: str, complete: Callable[[], type]) -> None:
        self.name = name
        self.complete = complete

    def __get__(self, instance: object, owner: type) -> object:
        value = vars(self.complete())[self.name]
        return value.__get__(instance, owner) if hasattr(value, "__get__") else value


deferred_field = DeferredField
MADE = (
    *(("__replace__",) if sys.version_info >= (3, 13) else ()),
    "__dataclass_fields__",
    "__dataclass_params__",
    "__match_args__",
    "__eq__",
    "__repr__",
    "__setattr__",
    "__init__",
)
"""What a dataclass has. `__init__` comes last: once it is there, the class is complete for other threads too."""


def deferred_dataclass(cls: type) -> type:
    """Make a class a dataclass that checks names, as `@checks_names @dataclass` does, but only when it is first used.

    Importing `dataclasses` and processing a hundred fields takes longer than everything else that a program loads
    before its first connection. For type checkers, import `dataclass` and `field` under these names instead.
    """
    fields: dict[str, Any] = {name: vars(cls)[name] for name in cls.__annotations__ if name in vars(cls)}
    factories = {name: value.default_factory for name, value in fields.items() if isinstance(value, DeferredField)}

    def complete() -> type:
        from dataclasses import dataclass, field

        from parley.sdk.spelling import checks_names

        kept = ("__module__", "__qualname__", "__doc__", "__annotations__", "__post_init__")
        same = {name: getattr(cls, name) for name in kept if hasattr(cls, name)}
        defaults = {**fields, **{name: field(default_factory=factory) for name, factory in factories.items()}}
        made: type = checks_names(dataclass(type(cls.__name__, (), {**defaults, **same})))
        for name in MADE:
            setattr(cls, name, vars(made)[name])
        return cls

    for name in factories:
        delattr(cls, name)
    for name in MADE:
        setattr(cls, name, DeferredAttribute(name, complete))
    cls.__hash__ = None  # type: ignore[assignment]  # as for every dataclass with __eq__
    return cls
