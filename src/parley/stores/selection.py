"""The table of stores, and the selection of one by `--store NAME[:LOCATION]`, `--db FILE` or PARLEY_STORE.

    folder                     the default directory, below the configuration directory
    folder:/var/agents         another directory
    sqlite:sessions.db         the same as `--db sessions.db`
    postgres://host/database   a URL selects its store by itself

`STORES` has one row per store; another package adds one with an entry point in `parley.stores`.

See also: `base.py` for the interface of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import parley.entry_points as entry_points
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
    """How to write it, if it needs a location."""
    schemes: tuple[str, ...] = ()
    """The schemes of its URLs."""
    holds_memory: bool = False
    """Whether its location is an SQLite file, which holds the long-term memory as well."""


STORES = {
    "claude": StoreKind(cls="parley.stores.files.store:ClaudeStore"),
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
            f"{entry_points.describe(GROUP, name)} must be a parley.stores.selection.StoreKind whose `open` is set"
        )
    return found


class StoreChoice(Struct, frozen=True):
    """A store by its name, and where its data is."""

    name: str
    location: str = ""
    """A path or URL; empty for the store's default."""

    @property
    def is_address(self) -> bool:
        return self.location.startswith(tuple(SCHEMES))

    @property
    def holds_memory(self) -> bool:
        return self.name in STORES and STORES[self.name].holds_memory


def choose(options: CliOptions, environment: Mapping[str, str]) -> StoreChoice | None:
    """The store that the options or the environment select; None if neither does. Raises UsageError."""
    if options.no_session_persistence and not (options.resume or options.continue_conversation):
        return StoreChoice("memory")
    if options.store and options.database:
        raise UsageError("--store and --db cannot be combined: both select the session store")
    if options.database:
        return StoreChoice("sqlite", options.database)
    value = options.store or environment.get("PARLEY_STORE")
    return parse(value) if value else None


def parse(value: str) -> StoreChoice:
    """Parse the value of `--store`. Raises UsageError."""
    for scheme, name in SCHEMES.items():
        if value.startswith(scheme):
            return StoreChoice(name, value)
    name, _, location = value.partition(":")
    usage = find_usage(name)
    if usage and (not location or "://" in usage):
        raise UsageError(f"the store {name!r} needs a location: write {usage}")
    return StoreChoice(name, location)


def find_usage(name: str) -> str:
    """How to write a store; empty if it needs no location, or cannot be used, which opening it reports."""
    try:
        return find_store(name).usage
    except (UsageError, entry_points.ExtensionError):
        return ""


def has_password(value: str) -> bool:
    """Whether a URL contains a password, which the process list would expose."""
    _, _, rest = value.partition("://")
    return value.startswith(tuple(SCHEMES)) and ":" in rest.partition("/")[0].rpartition("@")[0]
