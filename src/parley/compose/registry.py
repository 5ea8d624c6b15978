"""The table of implementations, and how rows become objects.

    load_tool("Read"), load_backend("openai"), load_store("sqlite"), load_dialect("miriad")

Tools, model backends and stores have their rows next to their interfaces (`tools/catalog.py`, `models/catalog.py`,
`stores/selection.py`); the rest is here. Rows are strings, so nothing is imported before it is needed. A name that
has no row may come from another installed package (`entry_points.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import parley.entry_points as entry_points
from parley.engine.clock import Clock
from parley.errors import UsageError
from parley.protocol.dialects.base import Dialect, DialectContext, DialectProfile
from parley.protocol.options import CliOptions
from parley.stores.base import Store, StoreSetup

if TYPE_CHECKING:
    from parley.models.base import Model, ModelSetup
    from parley.tools.base import Tool

TRANSPORTS = {
    "sdk": "parley.mcp.host_transport:HostTransport",
    "stdio": "parley.mcp.stdio:Stdio",
    "sse": "parley.mcp.remote:Sse",
    "http": "parley.mcp.remote:Http",
}
DIALECTS = {
    "stream-json": "parley.protocol.dialects.base:StreamJson",
    "spec001": "parley.protocol.dialects.spec001:Spec001",
    "miriad": "parley.protocol.dialects.miriad:Miriad",
    "jsonrpc": "parley.protocol.dialects.jsonrpc:JsonRpcDialect",
}
DIALECT_GROUP = "parley.dialects"
DEFAULT_DIALECT = "stream-json"
STDIO_DIALECT = "miriad"
"""The dialect of `--stdio` if the first line does not show another."""
AUTO = "auto"
"""The value of `--dialect` that leaves the choice to the first line."""


def import_object(row: str) -> Any:
    module, _, attribute = row.partition(":")
    return getattr(import_module(module), attribute)


# Tools, models and stores.


def load_tool(name: str) -> Callable[[], Tool]:
    """The class of a tool. Raises UsageError if there is no such tool."""
    from parley.tools.catalog import BUILT_IN, TOOLS, load_external

    if name in BUILT_IN:
        found: Callable[[], Tool] = import_object(TOOLS[name].cls)
        return found
    added: dict[str, Callable[[], Tool]] = load_external().classes
    if name not in added:
        raise UsageError(f"unknown tool {name!r} (choose from {', '.join([*BUILT_IN, *added])})")
    return added[name]


def load_backend(name: str) -> Callable[[ModelSetup, str], Model]:
    """What opens the models of a backend. Raises UsageError if it cannot be used."""
    from parley.models.catalog import find_backend, list_backends

    try:
        row = find_backend(name)
    except entry_points.ExtensionError as exc:
        raise UsageError(str(exc)) from None
    if row is None:
        raise UsageError(f"unknown model backend {name!r} (choose from {', '.join(list_backends())})")
    opener: Callable[[ModelSetup, str], Model] = row.open or import_object(row.cls).open
    return opener


def load_store(name: str) -> Callable[[StoreSetup], Store]:
    """What opens a store. Raises UsageError if it cannot be used."""
    from parley.stores.selection import find_store

    try:
        row = find_store(name)
    except entry_points.ExtensionError as exc:
        raise UsageError(str(exc)) from None
    opener: Callable[[StoreSetup], Store] = row.open or import_object(row.cls).from_setup
    return opener


def list_problems() -> Iterator[str]:
    """What is wrong with the entry points of other packages. Nothing is imported but their tools."""
    from parley.models.catalog import BACKENDS
    from parley.models.catalog import GROUP as MODEL_GROUP
    from parley.stores.selection import GROUP as STORE_GROUP
    from parley.stores.selection import STORES
    from parley.tools.catalog import load_external

    yield from load_external().problems
    for group, table in ((MODEL_GROUP, BACKENDS), (STORE_GROUP, STORES), (DIALECT_GROUP, DIALECTS)):
        for name in entry_points.discover(group):
            if name in table:
                yield f"{entry_points.describe(group, name)} is ignored: a built-in has the same name"


# Dialects.


def dialect_name(options: CliOptions) -> str:
    return options.dialect or (STDIO_DIALECT if options.stdio else DEFAULT_DIALECT)


def load_dialect(name: str) -> type[Dialect]:
    """The class of a dialect. Raises UsageError if it cannot be used."""
    if name in DIALECTS:
        built_in: type[Dialect] = import_object(DIALECTS[name])
        return built_in
    added = entry_points.discover(DIALECT_GROUP)
    if name not in added:
        known = ", ".join([*DIALECTS, *added, AUTO])
        raise UsageError(f"option '--dialect': argument {name!r} is invalid. Allowed choices are {known}.")
    try:
        found: type[Dialect] = entry_points.load(DIALECT_GROUP, name)
    except entry_points.ExtensionError as exc:
        raise UsageError(str(exc)) from None
    parts = ("name", "can_request", "profile", "decode", "encode")
    if missing := [part for part in parts if not hasattr(found, part)]:
        described = entry_points.describe(DIALECT_GROUP, name)
        raise UsageError(f"{described} cannot be used: the class has no {', '.join(missing)}")
    return found


def make_dialect(options: CliOptions, clock: Clock) -> Dialect:
    """The codec of a connection. Raises UsageError."""
    made: Any = load_dialect(dialect_name(options))
    codec: Dialect = made(DialectContext(now=clock.now, new_uuid=clock.new_uuid))
    return codec


def get_profile(options: CliOptions) -> DialectProfile:
    """Raises UsageError."""
    return load_dialect(dialect_name(options)).profile


def include_partial_messages(options: CliOptions) -> bool:
    """Whether the events of the model's stream are sent."""
    if options.output_format == "message":
        return False
    return options.include_partial_messages or (
        options.output_format == "stream-json" and get_profile(options).partial_messages
    )
