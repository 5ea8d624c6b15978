"""The format of a scenario file: what a fake engine does, turn by turn.

    version = "2.1.327 (Claude Code)"

    [[turn]]
    prompt = "notes"
    steps = [
        { say = "I will look." },
        { call = "Bash", input = { command = "cat notes.txt" }, ask = true, result = "buy milk" },
        { wait_ms = 50 },
        { say = "It says: buy milk." },
    ]

A turn answers one prompt, in order. A step is one table; its first key says what it does. `docs/testing/fake.md` lists
the steps. Errors name the line of the file.

See also: `engine.py`, which plays a scenario.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from parley.errors import UsageError
from parley.evals.toml_errors import KeyLines, KeyPath, convert_data, key_error, parse_toml
from parley.protocol.base import Json, Struct
from parley.version import PROTOCOL_LEVEL

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
MAX_LINE_BYTES = 256 * 1024 * 1024


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step. Its first key that is in `STEPS` says what it does."""

    line: int = msgspec.field(name="@line", default=0)
    """Its line in the file. This and `kind` are given here, not there."""
    kind: str = msgspec.field(name="@kind", default="")

    say: str = ""
    """The assistant says a text."""
    pad_to_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_LINE_BYTES)] = 0
    """Extend the text to this size."""
    think: str = ""
    call: str = ""
    """The assistant calls a tool, and gets its result."""
    hook: str = ""
    """Run the hooks that the client has registered for an event."""
    input: Json = {}
    """Of the call or the hook."""
    ask: bool = False
    """Ask the client for permission."""
    result: str | list[Json] | None = None
    """The result of the tool. A tool of the client's own (`mcp__SERVER__TOOL`) is called if this is not given."""
    error: str | None = None
    """The tool fails with this text."""
    result_id: str | None = None
    """Another id in the result than in the call."""
    request: Json = {}
    """Send a control request to the client, and wait for its answer."""
    id: str | None = None
    """Of the call or the request."""
    expect: Json | None = None
    """What the answer of the client must contain."""
    send: Json = {}
    """Send any message."""
    raw: str = ""
    """Write any text."""
    newline: bool = True
    wait_ms: NotNegative = 0
    wait_for: str = ""
    """Wait until the client sends a control request of this kind, such as `interrupt`."""
    stderr: str = ""
    exit: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    """Exit at once."""
    kill: str | None = None
    """End by a signal, such as SIGKILL or SIGSEGV."""
    hang: Literal[True] = True
    """Read nothing and answer nothing any more, until a signal ends the process."""

    half: bool = False
    """Write the first half of the line only, without a newline."""
    chunk_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Write the line in pieces of this size."""
    chunk_delay_ms: NotNegative = 0
    """The delay between two pieces."""

    def __post_init__(self) -> None:
        if self.kill is not None and self.kill not in signal.Signals.__members__:
            raise ValueError(f"unknown signal {self.kill!r}, expected a name such as SIGKILL")


OUTPUT = ("half", "chunk_bytes", "chunk_delay_ms")
"""How a step writes its line."""
STEPS: dict[str, tuple[str, ...]] = {
    "say": ("pad_to_bytes", *OUTPUT),
    "think": OUTPUT,
    "call": ("input", "ask", "expect", "result", "error", "id", "result_id"),
    "hook": ("input", "expect"),
    "request": ("id", "expect"),
    "send": OUTPUT,
    "raw": ("newline",),
    "wait_ms": (),
    "wait_for": (),
    "stderr": (),
    "exit": (),
    "kill": (),
    "hang": (),
}
"""The key that says what a step does, and the further keys that it can have."""


class ScenarioTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What answers one prompt."""

    prompt: str | None = None
    """The prompt must contain this text."""
    steps: list[Step] = []
    result: Json | bool = True
    """Fields of the result that ends the turn; false: the turn has no result."""
    line: int = msgspec.field(name="@line", default=0)


class RequestRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How control requests of one kind are answered."""

    response: Json | None = None
    error: str | None = None
    delay_ms: NotNegative = 0
    id: str | None = None
    """Answer with this id instead of that of the request."""
    silent: bool = False
    """Never answer."""


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario, ready to play."""

    name: str = msgspec.field(name="@name", default="")
    """That of its file."""
    version: str = f"{PROTOCOL_LEVEL} (Claude Code)"
    model: str = "fake-model"
    tools: tuple[str, ...] = ("Bash", "Edit", "Read", "Write")
    session_id: str = "00000000-0000-4000-8000-000000000001"
    auto_hooks: bool = True
    """Run the hooks of prompts, tools and the end of a turn by themselves."""
    at_end: Literal["error", "repeat"] = "error"
    exit_code: int | None = None
    start: list[Step] = []
    """Steps before anything is read."""
    on: dict[str, RequestRule] = {}
    turn: list[ScenarioTurn] = []


def load_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Raises UsageError that names the line."""
    name = os.fspath(path)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"cannot read scenario {name}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise UsageError(f"cannot read scenario {name}: it is not UTF-8 ({exc.reason})") from None
    return read_scenario(text, name)


def read_scenario(text: str, name: str = "scenario") -> Scenario:
    """Raises UsageError that names the line."""
    return make_scenario(parse_toml(text, name), name, text)


def make_scenario(data: Json, name: str, text: str = "") -> Scenario:
    """A scenario from what a file contains. `text`: the file, for the lines of errors. Raises UsageError."""
    lines = KeyLines(text)
    for at, table in list_tables(data):
        table["@line"] = lines.find(at)
        if at[0] == "start" or "steps" in at:
            table["@kind"] = next((key for key in table if key in STEPS), "")  # of several, the first one is meant
    scenario = convert_data({**data, "@name": name}, text, name, Scenario)
    for at, table in list_tables(data):
        if "@kind" in table and (problem := find_problem(table)):
            raise key_error(text, name, at, problem)
    return scenario


def list_tables(data: Json) -> Iterator[tuple[KeyPath, Json]]:
    """The turns and steps of a file, which may have any mistake."""

    def tables(at: KeyPath, rows: Any) -> Iterator[tuple[KeyPath, Json]]:
        for number, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, dict):
                yield (*at, number), row

    yield from tables(("start",), data.get("start"))
    for at, turn in tables(("turn",), data.get("turn")):
        yield at, turn
        yield from tables((*at, "steps"), turn.get("steps"))


def find_problem(step: Json) -> str:
    """What is wrong with a step although each of its keys is known; empty if nothing is."""
    kind = step["@kind"]
    if not kind:
        return f"a step needs one of {', '.join(STEPS)}"
    unknown = next((key for key in step if key not in (kind, "@line", "@kind", *STEPS[kind])), None)
    return "" if unknown is None else f"a step `{kind}` has no `{unknown}`, only {', '.join((kind, *STEPS[kind]))}"
