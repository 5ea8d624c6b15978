"""Errors for misspelled names that say which name was meant."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None if none is."""
    from parley.hooks.output import find_similar  # only needed for an invalid name

    return find_similar(name, frozenset(known))


def hint(name: str, known: Iterable[str]) -> str:
    meant = nearest(name, known)
    return f"; did you mean {meant!r}?" if meant is not None else ""


def checks_names(cls: C) -> C:
    """Make a dataclass name the nearest field if it is given, or assigned, one that it does not have.

    Type checkers see the class as it was written.
    """
    names = frozenset(each.name for each in fields(cls))
    original = cls.__init__  # type: ignore[misc]  # a class decorator

    @functools.wraps(original)
    def init(self: Any, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                raise TypeError(f"{cls.__name__}() has no argument {name!r}{hint(name, names)}")
        original(self, *args, **given)

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name not in names and not name.startswith("_") and name not in type(self).__dataclass_fields__:
            raise AttributeError(f"{cls.__name__} has no attribute {name!r}{hint(name, names)}")
        object.__setattr__(self, name, value)

    cls.__init__ = init  # type: ignore[misc]  # as above
    cls.__setattr__ = set_attribute  # type: ignore[assignment,method-assign]  # as above
    return cls


def check_keys(where: str, value: Mapping[Any, Any], known: Iterable[str]) -> None:
    """Raises TypeError for a key that is like a known one. Other unknown keys may be known to a newer engine."""
    known = frozenset(known)
    for key in value:
        if isinstance(key, str) and key not in known and (meant := nearest(key, known)) is not None:
            raise TypeError(f"{where} has no key {key!r}; did you mean {meant!r}?")
