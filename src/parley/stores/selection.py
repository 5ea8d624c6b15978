"""The table of stores, and which one is meant: `--store NAME[:PLACE]`, `--db FILE`, or the variable PARLEY_STORE.

    folder                     in its own place below the config folder
    folder:/var/agents         below another folder
    sqlite:sessions.db         the same as --db sessions.db
    postgres://host/database   an address is its own place

`STORES` has one row per store; another package adds one with an entry point in `parley.stores`.

See also: `base.py` for the interface of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from parley import entry_points
from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.options import CliOptions

if TYPE_CHECKING:
    from parley.stores.base import Store, StoreSetup

GROUP = "parley.stores"


class StoreKind(Struct, frozen=True, kw_only=True):
    """A way to keep sessions."""

    cls: str = ""
    """Where the class of a built-in store is. Its `from_setup` makes a store."""
    open: Callable[[StoreSetup], Store] | None = None
    """Makes a store, for stores of other packages. Raises UsageError or SessionError."""
    usage: str = ""
    """How it must be given, if it needs a place."""
    schemes: tuple[str, ...] = ()
    """How an address of it begins."""
    holds_memory: bool = False
    """Whether its place is an SQLite file, which holds the long-term memory as well."""


STORES = {
    "claude": StoreKind(cls="parley.stores.files.claude:ClaudeStore"),
    "folder": StoreKind(cls="parley.stores.files.folder:FolderStore"),
    "sqlite": StoreKind(cls="parley.stores.sql.sqlite:SqliteStore", usage="sqlite:FILE", holds_memory=True),
    "postgres": StoreKind(
        cls="parley.stores.sql.postgres:PostgresStore",
        usage="postgres://HOST/DATABASE",
        schemes=("postgres://", "postgresql://"),
    ),
    "memory": StoreKind(cls="parley.stores.memory:MemoryStore"),
}
SCHEMES = {scheme: name for name, row in STORES.items() for scheme in row.schemes}


def find_store(name: str) -> StoreKind:
    """The row of a store. Raises UsageError if there is none, ExtensionError if that of a package cannot be used."""
    if name in STORES:
        return STORES[name]
    added = entry_points.discover(GROUP)
    if name not in added:
        raise UsageError(f"unknown store {name!r} (choose from {', '.join([*STORES, *added])})")
    found = entry_points.load(GROUP, name)
    if not isinstance(found, StoreKind) or found.open is None:
        raise entry_points.ExtensionError(
            f"{entry_points.describe(GROUP, name)} is not a parley.stores.selection.StoreKind with `open`"
        )
    return found


class Chosen(Struct, frozen=True):
    """A store, and where it is."""

    name: str
    place: str = ""
    """Empty for the store's own place."""

    @property
    def is_address(self) -> bool:
        return self.place.startswith(tuple(SCHEMES))

    @property
    def holds_memory(self) -> bool:
        return self.name in STORES and STORES[self.name].holds_memory


def choose(options: CliOptions, environment: Mapping[str, str]) -> Chosen | None:
    """The store that is named; None if none is. Raises UsageError."""
    if options.no_session_persistence and not (options.resume or options.continue_conversation):
        return Chosen("memory")
    if options.store and options.database:
        raise UsageError("--store and --db both say where sessions are kept: give one of them")
    if options.database:
        return Chosen("sqlite", options.database)
    named = options.store or environment.get("PARLEY_STORE")
    return parse(named) if named else None


def parse(named: str) -> Chosen:
    """Raises UsageError."""
    for scheme, name in SCHEMES.items():
        if named.startswith(scheme):
            return Chosen(name, named)
    name, _, place = named.partition(":")
    usage = find_usage(name)
    if usage and (not place or "://" in usage):
        raise UsageError(f"the store {name!r} must be given as {usage}")
    return Chosen(name, place)


def find_usage(name: str) -> str:
    """How a store must be given; empty if it needs no place, or cannot be used, which opening it reports."""
    try:
        return find_store(name).usage
    except (UsageError, entry_points.ExtensionError):
        return ""


def has_password(named: str) -> bool:
    """Whether an address would show a password in the process list."""
    _, _, rest = named.partition("://")
    return named.startswith(tuple(SCHEMES)) and ":" in rest.partition("/")[0].rpartition("@")[0]
