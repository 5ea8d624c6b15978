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


class OutputStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a step writes its line. Any step that writes one can have these keys."""

    half: bool = False
    """Write the first half only, without a newline."""
    chunk_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Write the line in pieces of this size."""
    chunk_delay_ms: NotNegative = 0
    """The delay between two pieces."""


class SayStep(OutputStep, frozen=True):
    """The assistant says a text."""

    say: str
    pad_to_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_LINE_BYTES)] = 0
    """Extend the text to this size."""


class ThinkStep(OutputStep, frozen=True):
    """The assistant thinks."""

    think: str


class CallStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The assistant calls a tool, and gets its result."""

    call: str
    input: Json = {}
    ask: bool = False
    """Ask the client for permission."""
    expect: Json | None = None
    """What the answer of the client must contain."""
    result: str | list[Json] | None = None
    """The result of the tool. A tool of the client's own (`mcp__SERVER__TOOL`) is called if this is not given."""
    error: str | None = None
    """The tool fails with this text."""
    id: str | None = None
    result_id: str | None = None
    """Another id in the result than in the call."""


class HookStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run the hooks that the client has registered for an event."""

    hook: str
    input: Json = {}
    expect: Json | None = None


class RequestStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send a control request to the client, and wait for its answer."""

    request: Json
    id: str | None = None
    expect: Json | None = None


class SendStep(OutputStep, frozen=True):
    """Send any message."""

    send: Json


class RawStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write any text."""

    raw: str
    newline: bool = True


class WaitStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait_ms: NotNegative


class WaitForStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until the client sends a control request of this kind, such as `interrupt`."""

    wait_for: str


class StderrStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stderr: str


class ExitStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exit at once."""

    exit: Annotated[int, msgspec.Meta(ge=0, le=255)]


class KillStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End by a signal, such as SIGKILL or SIGSEGV."""

    kill: str

    def __post_init__(self) -> None:
        if self.kill not in signal.Signals.__members__:
            raise ValueError(f"unknown signal {self.kill!r}, expected a name such as SIGKILL")


class HangStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read nothing and answer nothing any more, until a signal ends the process."""

    hang: Literal[True]


AnyStep = (SayStep | ThinkStep | CallStep | HookStep | RequestStep | SendStep | RawStep | WaitStep | WaitForStep) | (
    StderrStep | ExitStep | KillStep | HangStep
)
STEPS: dict[str, type[AnyStep]] = {
    "say": SayStep,
    "think": ThinkStep,
    "call": CallStep,
    "hook": HookStep,
    "request": RequestStep,
    "send": SendStep,
    "raw": RawStep,
    "wait_ms": WaitStep,
    "wait_for": WaitForStep,
    "stderr": StderrStep,
    "exit": ExitStep,
    "kill": KillStep,
    "hang": HangStep,
}
"""The key that says what a step does."""


class PlacedStep(Struct, frozen=True):
    """A step, and its line in the file."""

    line: int
    do: AnyStep


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
    steps: list[PlacedStep]
    result: Json | bool


class Scenario(Struct, frozen=True):
    """A scenario, ready to play."""

    name: str
    file: ScenarioFile
    start: list[PlacedStep]
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


def read_steps(steps: Sequence[Json], name: str, lines: KeyLines, where: KeyPath) -> list[PlacedStep]:
    """Raises UsageError."""
    placed = []
    for at, step in enumerate(steps):
        line = lines.find((*where, at))
        kinds = [key for key in step if key in STEPS]
        if not kinds:
            found = ", ".join(f"`{key}`" for key in step) or "an empty step"
            guess = next((nearest(key, STEPS) for key in step if nearest(key, STEPS)), "")
            raise UsageError(f"{name}:{line}: found {found}, expected a step with one of {', '.join(STEPS)}{guess}")
        # `error` and other keys of a call are no kinds; of several kinds, the first one in the file is meant.
        kind = STEPS[kinds[0]]
        try:
            placed.append(PlacedStep(line, msgspec.convert(step, kind)))
        except msgspec.ValidationError as exc:
            raise UsageError(f"{name}:{line}: step `{kinds[0]}`: {explain_reason(exc, kind)}") from None
    return placed


def explain(exc: msgspec.ValidationError, name: str, lines: KeyLines) -> str:
    """The message for an error outside the steps."""
    path = parse_path(str(exc).partition(" - at `$")[2].rstrip("`"))
    key = unknown_key(str(exc))
    line = lines.find(path if key is None else (*path, key))
    kinds: dict[Any, type[Struct]] = {"turn": ScenarioTurn, "on": RequestRule}
    return f"{name}:{line}: {explain_reason(exc, kinds.get(path[0] if path else None, ScenarioFile))}"


def explain_reason(exc: msgspec.ValidationError, kind: type[Any]) -> str:
    """What is wrong, in the words of the format."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    if (key := unknown_key(str(exc))) is not None:
        return f"found unknown key `{key}`, expected one of {', '.join(known)}{nearest(key, known)}"
    reason, _, path = str(exc).partition(" - at `$.")
    wrong = re.match(r"Expected `(.*?)(?: \| null)?`, got `(.*)`$", reason)
    if wrong:
        return (
            f"found {NAMES.get(wrong[2], wrong[2])}, expected {NAMES.get(wrong[1], wrong[1])} as `{path.rstrip('`')}`"
        )
    return f"{reason} (`{path.rstrip('`')}`)" if path else reason


def unknown_key(text: str) -> str | None:
    found = re.search(r"unknown field `(.*?)`", text)
    return found[1] if found else None


def nearest(word: str, known: Sequence[str] | dict[str, Any]) -> str:
    """`; did you mean ...?`, or nothing."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean `{close[0]}`?" if close else ""
