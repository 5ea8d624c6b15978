"""Defer loading of modules that libraries import at the top but that are rarely used.

Without it, they take a fifth of the start-up time: asyncio imports `ssl` and `inspect`, msgspec its schema tools, and
the standard library what it needs for other systems and for tracebacks. `import M` does not load a deferred module;
`from M import X` and `M.X` do.

Only the executable uses this. The modules of a program that imports parley are not changed.
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
    from traceback import StackSummary
    from types import FrameType

DEFERRED = {
    "asyncio.sslproto",
    "asyncio.staggered",
    "concurrent.futures",
    "hashlib",
    "idna",
    "importlib.metadata",
    "inspect",
    "ipaddress",
    "linecache",
    "locale",
    "logging",
    "msgspec.inspect",
    "msgspec.toml",
    "msgspec.yaml",
    "platform",
    "ssl",
    "subprocess",
    "textwrap",
    "traceback",
    "trio",
    "truststore",
    "urllib.parse",
}
ABSENT = "typing_extensions"
"""msgspec prefers it to `typing` if it is installed. Our types do not need it, and it takes 2 ms to import."""

LOCK = RLock()
"""One lock for all modules, so that two threads cannot deadlock by loading modules that import each other."""


def defer() -> None:
    """Defer modules that are imported from now on. Loaded modules are not changed."""
    if LazyLoader in sys.meta_path:
        return
    sys.meta_path.insert(0, LazyLoader)
    import_without(ABSENT, "msgspec")


def import_without(absent: str, name: str) -> None:
    """Import a module as if another were not installed."""
    loaded = sys.modules.get(absent)
    sys.modules[absent] = None  # type: ignore[assignment]
    try:
        __import__(name)
    finally:
        del sys.modules[absent]
        if loaded is not None:
            sys.modules[absent] = loaded


class LazyLoader:
    """Finds deferred modules, and wraps the loader of each until the module is used."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in DEFERRED:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Use the default module object."""

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = LazyModule
        vars(module).update(KNOWN.get(module.__name__, {}))


class LazyModule(ModuleType):
    """A module whose code has not run yet."""

    def __getattr__(self, name: str) -> object:
        if name == "__path__":  # `from M import X` looks for it first; packages already have it
            raise AttributeError(name)
        with LOCK:
            if type(self) is LazyModule:
                load(self)
        return ModuleType.__getattribute__(self, name)


class LoadingModule(LazyModule):
    """A module whose code is running."""

    def __getattribute__(self, name: str) -> object:
        found = ModuleType.__getattribute__(self, name)
        if not name.startswith("__"):
            with LOCK:  # another thread may be loading; wait, because the value may depend on what is still missing
                pass
        return found


def load(module: ModuleType) -> None:
    spec = module.__spec__
    assert spec is not None
    assert isinstance(spec.loader, LazyLoader)
    module.__class__ = LoadingModule
    try:
        spec.loader.loader.exec_module(module)
    except BaseException:
        module.__class__ = LazyModule  # the next use tries again
        raise
    module.__loader__ = spec.loader = spec.loader.loader
    module.__class__ = ModuleType


def system() -> str:
    return os.uname().sysname


def version(distribution: str) -> str:
    """Read a version from the name of the `.dist-info` folder. httpx2 asks for its own version on import."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{distribution}-") and name.endswith(".dist-info"):
                return name[len(distribution) + 1 : -len(".dist-info")]
    from importlib.metadata import distribution as find  # loads the module

    return find(distribution).version


def quote_from_bytes(data: bytes) -> str:
    """For pathlib, which imports it from urllib.parse but uses it only for URIs."""
    from urllib.parse import quote  # loads the module

    return quote(data)


class LazyLogger:
    """For asyncio and concurrent.futures, which create their loggers on import.

    Loads `logging` when it is used. Debug messages do not count as use: until then, they are not enabled.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, *args: object, **options: object) -> None:
        if type(sys.modules["logging"]) is not LazyModule:
            self.__getattr__("debug")(*args, **options)

    def __getattr__(self, name: str) -> Callable[..., object]:
        from logging import Logger  # loads the module

        found: Callable[..., object] = getattr(Logger.manager.getLogger(self._name), name)
        return found


def extract_stack(frame: FrameType | None = None, limit: int | None = None) -> StackSummary:
    """For asyncio, which looks it up on import but uses it only in debug mode."""
    from traceback import StackSummary, walk_stack  # loads the module

    stack = StackSummary.extract(walk_stack(frame or sys._getframe(1)), limit=limit)
    stack.reverse()
    return stack


class SSLSocket:
    """For asyncio, which refuses such sockets. There are none before `ssl` is loaded, which replaces this class."""


KNOWN: dict[str, dict[str, Callable[..., object] | int | str]] = {
    "concurrent.futures": {name: name for name in ("FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED")},
    "importlib.metadata": {"version": version},
    "logging": {"DEBUG": 10, "getLogger": LazyLogger},
    "platform": {"system": system} if hasattr(os, "uname") else {},
    "ssl": {"SSLSocket": SSLSocket},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "traceback": {"extract_stack": extract_stack},
    "urllib.parse": {"quote_from_bytes": quote_from_bytes},
}
"""Attributes that are used during start-up and available without loading the module."""
