"""The behaviours of the protocol: one row each, with an id that checks name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from parley.protocol.base import Struct

LEVELS = ("core", "control", "sessions", "dialects")
REQUIRED = ("P0", "P1")


class Behaviour(Struct, frozen=True):
    """A row of the catalogue."""

    id: str
    area: str
    level: str
    priority: str
    """P0, P1, P2, or `-` for a rule that belongs to all of them."""
    summary: str
    source: str
    """The document and section."""


@cache
def read_behaviours() -> dict[str, Behaviour]:
    """All behaviours by id, in the order of the catalogue."""
    lines = files("parley.conformance").joinpath("behaviours.tsv").read_text(encoding="utf-8").splitlines()
    rows = [Behaviour(*line.split("\t")) for line in lines[1:]]
    return {row.id: row for row in rows}
