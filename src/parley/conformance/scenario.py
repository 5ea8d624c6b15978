"""The format of a scenario: what is done to an engine, and what is expected of it (`scenarios/*.toml`).

    [[scenario]]
    name = "deny"
    on = { can_use_tool = { behavior = "deny", message = "Not on a Tuesday" } }
    model = [{ bash = ["touch x.txt", "toolu_touch"] }, { say = "ok, denied" }]
    steps = [{ turn = ["go", "--permission-prompt-tool", "stdio"] }, { keep = "x.txt" }]

    [[scenario.check]]
    id = "permission.deny"
    covers = "ask.can_use_tool"
    basis = "trace 033"
    expects = "a denied command does not run; the turn continues"
    need = [{ not_made = "x.txt" }, { tool_fails = ["toolu_touch", "Not on a Tuesday"] }]

An entry of a list is a name, or a table whose first key is one: its value is the argument, or the list of arguments;
further keys are named arguments. A step is a method of `EngineDriver`, a turn of the model a function of `driver.py`, a
need one of `conditions.py`, or a function of `judges.py` or `invariants.py`. `{cwd}`, `{root}`, `{python}` and `{url}`
stand for the places of a run, `{uuid of assistant}` for a field of the first such line, `{word *400}` for a long text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from parley.protocol.base import Json, Struct

Entry = Json | str


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
    return {row.id: row for line in lines[1:] for row in [Behaviour(*line.split("\t"))]}


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is expected of an engine or a client in a scenario."""

    id: str
    """Its own. If that of a behaviour, the check covers it."""
    covers: str = ""
    """The ids of further behaviours."""
    basis: str
    """Where the expectation is from."""
    expects: str
    complaint: str = ""
    """The public issues about engines that do otherwise, by group: `A: TS#427; B: CC#85129`."""
    is_advice: bool = False
    """Whether the recorded engine does otherwise, on purpose: reported, and not part of the score."""
    scenario: str = ""
    """Its name. It is not repeated in the file."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The ids of the behaviours that it covers."""
        return (*([self.id] if self.id in read_behaviours() else []), *self.covers.split())

    @property
    def behaviour(self) -> Behaviour:
        return read_behaviours()[self.rows[0]]


class EngineCheck(Check, frozen=True, kw_only=True):
    need: list[Entry]


class FieldEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checks that lines of a kind have fields of a type."""

    line: str
    basis: str
    rows: dict[str, str]
    """By behaviour, for example `"result.usage" = "usage:o"`. `?` marks an optional field."""


class ConformanceScenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    about: str = ""
    on_gateways: bool = False
    """Whether it can be played on a gateway, which has no command line, exit code, environment or transcript."""
    is_dialect: bool = False
    """Whether an engine that ends without a word does not have the dialect, and is not judged."""
    server: Literal["", "http", "sse"] = ""
    """The kind of an MCP server (calculator.py) to run; its address is `{url}`."""
    files: dict[str, str] = {}
    """Relative to the working directory."""
    env: dict[str, str] = {}
    on: dict[str, Any] = {}
    """The answers to control requests of the engine, by subtype (`EngineDriver.find_reply`)."""
    hooks: dict[str, Any] = {}
    """The answers of hooks, by event. They are registered in `initialize`."""
    model: list[Entry] = []
    """The turns of the model at the start."""
    steps: list[Entry] = []
    fields: list[FieldEntries] = []
    check: list[EngineCheck] = []


class ConformanceFile(Struct, frozen=True, forbid_unknown_fields=True):
    scenario: list[ConformanceScenario]


def call(entry: Entry, vocabulary: Mapping[str, Callable[..., Any]], *first: Any) -> Any:
    """Call what an entry of a list names, with these arguments before its own."""
    (name, value), *more = entry.items() if isinstance(entry, dict) else [(entry, [])]
    arguments = value if isinstance(value, list) else [value]
    return vocabulary[name](*first, *arguments, **dict(more))
