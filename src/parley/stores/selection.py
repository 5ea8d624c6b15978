"""Which store is meant: `--store NAME[:PLACE]`, `--db FILE`, or the variable PARLEY_STORE.

folder                     its own place below the config folder
folder:/var/agents         below another folder
sqlite:sessions.db         what --db sessions.db says
postgres://host/database   an address is its own place
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.protocol.options import Options

SCHEMES = ("postgres://", "postgresql://")
NEEDS_PLACE = {"sqlite": "sqlite:FILE", "postgres": "postgres://HOST/DATABASE"}


class Chosen(Struct, frozen=True):
    name: str
    place: str = ""
    """"" is where the store is by itself."""

    @property
    def is_address(self) -> bool:
        return self.place.startswith(SCHEMES)


def choose(options: Options, environment: Mapping[str, str]) -> Chosen | None:
    """The store that was named; None if none was. Raises UsageError."""
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
    if named.startswith(SCHEMES):
        return Chosen("postgres", named)
    name, _, place = named.partition(":")
    if name in NEEDS_PLACE and (not place or name == "postgres"):
        raise UsageError(f"the store {name!r} must be given as {NEEDS_PLACE[name]}")
    return Chosen(name, place)


def has_password(named: str) -> bool:
    """Whether an address would show a password to whoever sees the process list."""
    _, _, behind = named.partition("://")
    return named.startswith(SCHEMES) and ":" in behind.partition("/")[0].rpartition("@")[0]
