"""Select a store by `--store NAME[:LOCATION]`, `--db FILE` or the environment variable PARLEY_STORE.

folder                     the default directory, below the configuration directory
folder:/var/agents         another directory
sqlite:sessions.db         the same as `--db sessions.db`
postgres://host/database   a URL selects its store by itself
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.options import CliOptions

SCHEMES = ("postgres://", "postgresql://")
NEEDS_LOCATION = {"sqlite": "sqlite:FILE", "postgres": "postgres://HOST/DATABASE"}


class StoreChoice(Struct, frozen=True):
    """A store by its registry name, and where its data is."""

    name: str
    location: str = ""
    """A path or URL; "" for the store's default."""

    @property
    def is_address(self) -> bool:
        return self.location.startswith(SCHEMES)


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
    if value.startswith(SCHEMES):
        return StoreChoice("postgres", value)
    name, _, location = value.partition(":")
    if name in NEEDS_LOCATION and (not location or name == "postgres"):
        raise UsageError(f"the store {name!r} needs a location: write {NEEDS_LOCATION[name]}")
    return StoreChoice(name, location)


def has_password(value: str) -> bool:
    """Whether a URL contains a password, which the process list would expose."""
    _, _, rest = value.partition("://")
    return value.startswith(SCHEMES) and ":" in rest.partition("/")[0].rpartition("@")[0]
