"""Modules that others import at their top, and that we hardly ever use, are loaded when they are first touched.

A fifth of the start went to them: asyncio names `ssl` and `inspect`, msgspec its tools for schemas, the standard
library what it needs for other systems and for tracebacks. `import M` touches nothing, `from M import X` and `M.X` do.

For the executable only, whose process is ours alone: a program that imports parley keeps its modules as they are.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from threading import RLock
from types import ModuleType

DEFERRED = (
    "asyncio.sslproto",
    "inspect",
    "ipaddress",
    "linecache",
    "locale",
    "msgspec.inspect",
    "platform",
    "ssl",
    "textwrap",
)
ABSENT = "typing_extensions"
"""What msgspec prefers to `typing` where it is installed: for our types it makes no difference but 2 ms."""

LOCK = RLock()
"""One for all: whoever waits for it imports none of the modules that the code of the others imports."""
LOADING: list[ModuleType] = []


class Waiting(ModuleType):
    """A module whose code has not run yet."""

    def __getattr__(self, name: str) -> object:
        with LOCK:
            if type(self) is Waiting and self not in LOADING:
                load(self)
        return ModuleType.__getattribute__(self, name)


def load(module: ModuleType) -> None:
    LOADING.append(module)
    try:
        assert module.__spec__ is not None
        assert module.__spec__.loader is not None
        module.__spec__.loader.exec_module(module)
        module.__class__ = ModuleType
    finally:
        LOADING.remove(module)


def defer() -> None:
    for name in DEFERRED:
        package, _, _ = name.rpartition(".")
        home = PathFinder.find_spec(package) if package else None
        spec = PathFinder.find_spec(name, home.submodule_search_locations if home else None)
        if spec is not None and name not in sys.modules:
            module = sys.modules[name] = module_from_spec(spec)
            module.__class__ = Waiting
    if (platform := sys.modules.get("platform")) is not None and hasattr(os, "uname"):
        # The one thing that is asked of it on the way: `uuid` wants to know whether this is Linux.
        vars(platform).setdefault("system", lambda: os.uname().sysname)
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
