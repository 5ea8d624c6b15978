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

import difflib
import os
import re
import signal
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from parley.errors import UsageError
from parley.evals.toml_errors import KeyLines, KeyPath, parse_path
from parley.protocol.base import Json, Struct
from parley.version import PROTOCOL_LEVEL

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
MAX_LINE_BYTES = 256 * 1024 * 1024
NAMES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step. Its first key that is in `STEPS` says what it does."""

    line: int = 0
    """Its line in the file; given here, not there."""
    kind: str = ""

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
    steps: list[Json] = []
    result: Json | bool = True
    """Fields of the result that ends the turn; false: the turn has no result."""


class RequestRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How control requests of one kind are answered."""

    response: Json | None = None
    error: str | None = None
    delay_ms: NotNegative = 0
    id: str | None = None
    """Answer with this id instead of that of the request."""
    silent: bool = False
    """Never answer."""


class ScenarioFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario as it is written in a file."""

    version: str = f"{PROTOCOL_LEVEL} (Claude Code)"
    model: str = "fake-model"
    tools: tuple[str, ...] = ("Bash", "Edit", "Read", "Write")
    session_id: str = "00000000-0000-4000-8000-000000000001"
    auto_hooks: bool = True
    """Run the hooks of prompts, tools and the end of a turn by themselves."""
    at_end: Literal["error", "repeat"] = "error"
    exit_code: int | None = None
    start: list[Json] = []
    """Steps before anything is read."""
    on: dict[str, RequestRule] = {}
    turn: list[ScenarioTurn] = []


class PlacedTurn(Struct, frozen=True):
    """A turn, ready to play."""

    line: int
    prompt: str | None
    steps: list[Step]
    result: Json | bool


class Scenario(Struct, frozen=True):
    """A scenario, ready to play."""

    name: str
    file: ScenarioFile
    start: list[Step]
    turns: list[PlacedTurn]


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
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(exc))
        reason = str(exc).partition(" (at ")[0]
        where = f":{place[1]}:{place[2]}" if place else f":{text.count(chr(10)) + 1}"
        raise UsageError(f"{name}{where}: {reason}; expected TOML") from None
    return make_scenario(found, name, KeyLines(text))


def make_scenario(data: Json, name: str, lines: KeyLines | None = None) -> Scenario:
    """A scenario from what a file contains. Raises UsageError."""
    lines = lines or KeyLines("")
    try:
        file = msgspec.convert(data, ScenarioFile)
    except msgspec.ValidationError as exc:
        raise UsageError(explain(exc, name, lines)) from None
    start = read_steps(file.start, name, lines, ("start",))
    turns = [
        PlacedTurn(
            line=lines.find(("turn", at)),
            prompt=turn.prompt,
            steps=read_steps(turn.steps, name, lines, ("turn", at, "steps")),
            result=turn.result,
        )
        for at, turn in enumerate(file.turn)
    ]
    return Scenario(name, file, start, turns)


def read_steps(steps: Sequence[Json], name: str, lines: KeyLines, where: KeyPath) -> list[Step]:
    """Raises UsageError."""
    placed = []
    for at, step in enumerate(steps):
        line = lines.find((*where, at))
        kinds = [key for key in step if key in STEPS]
        if not kinds:
            keys = ", ".join(f"`{key}`" for key in step) or "an empty step"
            guess = next((nearest(key, STEPS) for key in step if nearest(key, STEPS)), "")
            raise UsageError(f"{name}:{line}: found {keys}, expected a step with one of {', '.join(STEPS)}{guess}")
        kind = kinds[0]  # of several kinds, the first one in the file is meant
        known = (kind, *STEPS[kind])
        unknown = next((key for key in step if key not in known), None)
        try:
            found = msgspec.convert({key: step[key] for key in step if key in known}, Step)
        except msgspec.ValidationError as exc:
            raise UsageError(f"{name}:{line}: step `{kind}`: {explain_reason(exc)}") from None
        if unknown is not None:
            raise UsageError(f"{name}:{line}: step `{kind}`: {describe_unknown(unknown, known)}")
        placed.append(msgspec.structs.replace(found, line=line, kind=kind))
    return placed


def explain(exc: msgspec.ValidationError, name: str, lines: KeyLines) -> str:
    """The message for an error outside the steps."""
    path = parse_path(str(exc).partition(" - at `$")[2].rstrip("`"))
    text = str(exc)
    found = re.search(r"unknown field `(.*?)`", text)
    key = found[1] if found else None
    line = lines.find(path if key is None else (*path, key))
    kinds: dict[Any, type[Struct]] = {"turn": ScenarioTurn, "on": RequestRule}
    if key is None:
        return f"{name}:{line}: {explain_reason(exc)}"
    kind = kinds.get(path[0] if path else None, ScenarioFile)
    return f"{name}:{line}: {describe_unknown(key, [field.encode_name for field in msgspec.structs.fields(kind)])}"


def describe_unknown(key: str, known: Sequence[str]) -> str:
    return f"found unknown key `{key}`, expected one of {', '.join(known)}{nearest(key, known)}"


def explain_reason(exc: msgspec.ValidationError) -> str:
    """What is wrong, in the words of the format."""
    reason, _, path = str(exc).partition(" - at `$.")
    wrong = re.match(r"Expected `(.*?)(?: \| null)?`, got `(.*)`$", reason)
    if wrong:
        return (
            f"found {NAMES.get(wrong[2], wrong[2])}, expected {NAMES.get(wrong[1], wrong[1])} as `{path.rstrip('`')}`"
        )
    return f"{reason} (`{path.rstrip('`')}`)" if path else reason


def nearest(word: str, known: Sequence[str] | dict[str, Any]) -> str:
    """`; did you mean ...?`, or nothing."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{close[0]}`?" if close else ""
