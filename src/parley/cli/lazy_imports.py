"""Modules that others import at their top, and that we hardly ever use, are loaded when they are first touched.

A fifth of the start went to them: asyncio names `ssl` and `inspect`, msgspec its tools for schemas, the standard
library what it needs for other systems and for tracebacks. `import M` touches nothing, `from M import X` and `M.X` do.

For the executable only, whose process is ours alone: a program that imports parley keeps its modules as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

DEFERRED = {
    "asyncio.sslproto",
    "asyncio.staggered",
    "hashlib",
    "idna",
    "importlib.metadata",
    "inspect",
    "ipaddress",
    "linecache",
    "locale",
    "msgspec.inspect",
    "msgspec.toml",
    "msgspec.yaml",
    "platform",
    "ssl",
    "subprocess",
    "textwrap",
    "trio",
    "truststore",
    "urllib.parse",
}
ABSENT = "typing_extensions"
"""What msgspec prefers to `typing` where it is installed: for our types it makes no difference but 2 ms."""

LOCK = RLock()
"""One for all: whoever waits for it imports none of the modules that the code of the others imports."""
LOADING: list[ModuleType] = []


def defer() -> None:
    """From now on. What is loaded already stays as it is."""
    sys.meta_path.insert(0, LazyFinder)
    import_without(ABSENT, "msgspec")


def import_without(absent: str, name: str) -> None:
    """Import a module as if another were not installed."""
    kept = sys.modules.get(absent)
    sys.modules[absent] = None  # type: ignore[assignment]
    try:
        __import__(name)
    finally:
        del sys.modules[absent]
        if kept is not None:
            sys.modules[absent] = kept


class LazyFinder:
    """Finds what is deferred, and has it loaded later."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in DEFERRED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec


class LazyLoader:
    """Stands for the loader of a module until that is touched."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, _spec: ModuleSpec) -> None:
        """The usual kind of module will do."""

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = LazyModule
        vars(module).update(KNOWN.get(module.__name__, {}))


class LazyModule(ModuleType):
    """A module whose code has not run yet."""

    def __getattribute__(self, name: str) -> object:
        found = ModuleType.__getattribute__(self, name)
        if LOADING and not name.startswith("__"):
            with LOCK:  # what is there of it by now may lean on what is not: another thread is at it
                pass
        return found

    def __getattr__(self, name: str) -> object:
        if name == "__path__":  # `from M import X` looks for it first; packages have it from the beginning
            raise AttributeError(name)
        with LOCK:
            if type(self) is LazyModule and self not in LOADING:
                load(self)
        return ModuleType.__getattribute__(self, name)


def load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    assert isinstance(spec.loader, LazyLoader)
    LOADING.append(module)
    try:
        spec.loader.loader.exec_module(module)
    finally:
        LOADING.remove(module)
    module.__loader__ = spec.loader = spec.loader.loader
    module.__class__ = ModuleType


def system() -> str:
    return os.uname().sysname


def version(distribution: str) -> str:
    """From the name of the folder in which an installer keeps what it knows; asked by httpx2 about itself."""
    for place in sys.path:
        try:
            names = os.listdir(place or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{distribution}-") and name.endswith(".dist-info"):
                return name[len(distribution) + 1 : -len(".dist-info")]
    from importlib.metadata import distribution as found  # a touch

    return found(distribution).version


def quote_from_bytes(data: bytes) -> str:
    """For pathlib, which takes it from urllib.parse and uses it for URIs only."""
    from urllib.parse import quote  # a touch

    return quote(data)


KNOWN: dict[str, dict[str, Callable[..., str] | int]] = {
    "importlib.metadata": {"version": version},
    "platform": {"system": system} if hasattr(os, "uname") else {},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "urllib.parse": {"quote_from_bytes": quote_from_bytes},
}
"""What is asked of a module on the way, and answered without it."""
