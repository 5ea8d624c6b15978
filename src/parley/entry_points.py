"""Tools, model backends, stores, dialects and hooks from other installed packages.

    discover("parley.tools")                 # {"WordCount": EntryPoint(...)}; nothing is imported
    load("parley.tools", "WordCount")        # the object that the entry point names

A package declares what it adds as an entry point in the group `parley.tools`, `parley.models`, `parley.stores`,
`parley.dialects` or `parley.hooks`. A session without such packages pays for one look at the folders on `sys.path`.
`docs/extending.md` shows what each group expects.

See also: `tools/catalog.py`, `models/catalog.py`, `stores/selection.py`, `compose/registry.py` and
`hooks/extension.py`, which check what an entry point gives and refuse a name of a built-in.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SUFFIX = ".dist-info"
MAX_BYTES = 1 << 20
MARKER = b"[parley."
"""How a section of ours begins in a package's entry_points.txt."""


class ExtensionError(Exception):
    """An entry point that cannot be used: which one, of which package, and why."""


@functools.cache
def discover(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by their names. Of two with one name the first on `sys.path` is used."""
    if not has_extensions():
        return {}
    from importlib.metadata import distributions

    found: dict[str, EntryPoint] = {}
    for distribution in distributions(path=search_path()):
        for point in distribution.entry_points.select(group=group):
            found.setdefault(point.name, point)
    return found


@functools.cache
def has_extensions() -> bool:
    """Whether any installed package names one of our groups.

    importlib.metadata takes longer to import than this takes to look.
    """
    return any(map(names_group, search_path()))


def search_path() -> list[str]:
    """`sys.path` without the working directory, which `python -m` adds: a repository must not add extensions."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = ""
    return [folder for folder in sys.path if folder and folder != here]


def names_group(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(holds_marker(f"{folder}/{name}/entry_points.txt") for name in names if name.endswith(SUFFIX))


def holds_marker(path: str) -> bool:
    try:
        # os.open takes a third of the instructions of open(), and every start does this for every package.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return MARKER in os.read(descriptor, MAX_BYTES)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def load(group: str, name: str) -> Any:
    """The object of an entry point. Raises KeyError if there is none of that name, ExtensionError if it cannot load."""
    point = discover(group)[name]
    try:
        return point.load()
    except Exception as exc:  # whatever the module of a stranger raises must not end the session
        raise ExtensionError(f"{describe(group, name)} cannot be loaded: {type(exc).__name__}: {exc}") from exc


def describe(group: str, name: str) -> str:
    """How messages name an entry point."""
    point = discover(group).get(name)
    package = point.dist.name if point is not None and point.dist is not None else "an unknown package"
    return f"extension {name!r} ({group}, from {package})"
