"""Scripted model turns: the format of script files, and how a turn is played by fake models and test servers.

    [[turn]]
    text = "Hello there."

    [[turn]]
    thinking = "A file would help."
    text = "I will look."
    tools = [{ name = "Read", input = { file_path = "notes.txt" } }]

    [[turn]]
    error = { status = 529, type = "overloaded_error", message = "busy" }

    [[turn]]
    text = "This never arrives whole."
    fault = "reset=3"

A turn has `text`, `thinking` and `tools`, in that order, or `blocks` for full control. `delay_ms` waits before the
answer and `event_delay_ms` between events. `waits = [{ after_chars = 20, seconds = 2.0 }]` waits once that much of the
thinking and the text has been sent. `chunk_chars` sets the size of a delta. `usage` and `stop_reason` replace the
defaults. A turn with `when` is played for the first request whose last user text contains that text; the other
turns are played in order. `fault` injects a fault (faults.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from parley.errors import ModelError, UsageError
from parley.models.base import ModelEvent, ModelRequest, read_event
from parley.models.event_synthesis import event_objects, message_json
from parley.protocol.base import Json, Struct


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call of a scripted answer."""

    name: str
    input: Json | str = {}
    """A string is sent unchanged, even if it is not valid JSON."""
    id: str | None = None


class ScriptedError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer that fails."""

    status: int | None = None
    type: str = "api_error"
    message: str = "scripted error"
    retry_after_seconds: float | None = None

    def to_error(self) -> ModelError:
        """The error that a model call raises."""
        retryable = self.status is None or self.status in (401, 408, 409, 429) or self.status >= 500
        return ModelError(
            self.message,
            status=self.status,
            kind=self.type,
            retryable=retryable,
            retry_after_seconds=self.retry_after_seconds,
        )


class ScriptedWait(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pause inside of a scripted answer."""

    after_chars: int
    """How many characters of thinking and text come before it. Tool calls come after every pause."""
    seconds: float


class ScriptedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scripted answer, with every detail."""

    thinking: str | None = None
    text: str | None = None
    tools: list[ScriptedCall] = []
    blocks: list[Json] | None = None
    error: ScriptedError | None = None
    when: str | None = None
    delay_ms: float = 0
    event_delay_ms: float = 0
    waits: list[ScriptedWait] = []
    chunk_chars: Annotated[int, msgspec.Meta(ge=1)] = 40
    usage: Json = {}
    stop_reason: str | None = None
    fault: str | None = None

    def __post_init__(self) -> None:
        if self.fault is not None:
            from parley.models.faults import read_fault

            if "@" in self.fault:
                raise ValueError(
                    "a fault in a script always applies to its own turn: remove `@` and the numbers after it"
                )
            read_fault(self.fault)
        if any(not isinstance(block.get("type"), str) for block in self.blocks or ()):
            raise ValueError("every block needs a `type`")

    def message(self, model: str, new_id: Callable[[], str], prompt_chars: int) -> Json:
        """The answer as a complete message."""
        content = (
            [fill_ids(block, new_id) for block in self.blocks] if self.blocks is not None else self._content(new_id)
        )
        output_bytes = sum(len(msgspec.json.encode(block)) for block in content)
        # Tokens are estimated at four characters each.
        usage = {
            "input_tokens": max(1, prompt_chars // 4),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": max(1, output_bytes // 4),
            "service_tier": "standard",
            **self.usage,
        }
        return message_json(content, id=f"msg_{new_id()}", model=model, usage=usage, stop_reason=self.stop_reason)

    def _content(self, new_id: Callable[[], str]) -> list[Json]:
        content: list[Json] = []
        if self.thinking is not None:
            content.append({"type": "thinking", "thinking": self.thinking, "signature": "c2NyaXB0ZWQ="})
        if self.text is not None:
            content.append({"type": "text", "text": self.text})
        return content + [fill_ids(to_block(call), new_id) for call in self.tools]


def fill_ids(block: Json, new_id: Callable[[], str]) -> Json:
    """The block with default ids and signature."""
    if block.get("type") == "tool_use":
        return {**block, "id": block.get("id") or f"toolu_{new_id()}", "input": block.get("input", {})}
    if block.get("type") == "thinking":
        return {"signature": "c2NyaXB0ZWQ=", **block}
    return block


class ScriptFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A script as it is written in a file, in TOML or JSON."""

    turn: list[ScriptedTurn] = []
    at_end: Literal["error", "repeat"] = "error"


TurnLike = str | ScriptedCall | ScriptedTurn | Sequence[str | ScriptedCall]
"""One answer of the model: a text, a tool call, several of both, or a `ScriptedTurn` for everything else."""


class Script:
    """The answers of a fake model, one turn for each model call.

        Script([
            ["I will look.", call("Bash", command="cat notes.txt")],
            "It says: buy milk.",
        ])

    A turn is a text, a tool call, or a list of texts and tool calls; a `ScriptedTurn` can also fail, wait or think.
    `at_end` says what happens after the last turn: fail, or repeat the last turn. Use a script as `Options.model`, or
    with a test server.
    """

    def __init__(self, turn: Iterable[TurnLike] = (), *, at_end: Literal["error", "repeat"] = "error") -> None:
        """Raises TypeError for any other turn, ValueError for an unknown `at_end`."""
        if isinstance(turn, str | ScriptedCall):
            raise TypeError(f"a Script takes a list of turns, not {type(turn).__name__}")
        if at_end not in ("error", "repeat"):
            raise ValueError(f"at_end must be 'error' or 'repeat', not {at_end!r}")
        self.turn = [to_turn(each) for each in turn]
        self.at_end = at_end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Script) and (self.turn, self.at_end) == (other.turn, other.at_end)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"Script({self.turn!r}, at_end={self.at_end!r})"

    def to_json(self) -> bytes:
        """The script as a file in JSON."""
        return msgspec.json.encode(ScriptFile(turn=self.turn, at_end=self.at_end))


def call(name: str, /, **input: Any) -> ScriptedCall:
    """A tool call of a script: `call("Bash", command="ls")`."""
    return ScriptedCall(name=name, input=input)


def to_turn(given: TurnLike) -> ScriptedTurn:
    """Raises TypeError."""
    if isinstance(given, ScriptedTurn):
        return given
    parts = [given] if isinstance(given, str | ScriptedCall) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str | ScriptedCall) for part in parts):
        raise TypeError(f"a turn of a Script must be a text, a call() or a list of these, not {given!r:.200}")
    texts = [part for part in parts if isinstance(part, str)]
    calls = [part for part in parts if isinstance(part, ScriptedCall)]
    if len(texts) < 2 and parts == [*texts, *calls]:
        return ScriptedTurn(text=texts[0] if texts else None, tools=calls)
    return ScriptedTurn(blocks=[to_block(part) for part in parts])


def to_block(part: str | ScriptedCall) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.input}


def read_script(text: str, name: str) -> Script:
    """Parse a script in TOML or JSON. Raises UsageError."""
    import tomllib

    try:
        if text.lstrip().startswith("{"):  # which no TOML file does
            file = msgspec.json.decode(text, type=ScriptFile)
        else:
            file = msgspec.convert(tomllib.loads(text), ScriptFile)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, ValueError) as exc:
        raise UsageError(f"invalid script {name}: {exc}") from None
    return Script(file.turn, at_end=file.at_end)


class ScriptPlayer:
    """Chooses the turn that answers each request."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._cued = [turn for turn in script.turn if turn.when is not None]
        self._next = [turn for turn in script.turn if turn.when is None]
        self._last = self._next[-1] if self._next else None

    def turn_for(self, request: ModelRequest) -> ScriptedTurn:
        """Raises ModelError if no turn is left."""
        text = last_text(request.messages)
        for turn in self._cued:
            if turn.when is not None and turn.when in text:
                self._cued.remove(turn)
                return turn
        if self._next:
            return self._next.pop(0)
        if self._script.at_end == "repeat" and self._last is not None:
            return self._last
        raise ModelError("the script has no turns left", kind="script_over")


async def play(
    turn: ScriptedTurn, request: ModelRequest, new_id: Callable[[], str]
) -> AsyncGenerator[ModelEvent, None]:
    """The events of one scripted turn. Raises its error."""
    if turn.delay_ms:
        await asyncio.sleep(turn.delay_ms / 1000)
    if turn.error is not None:
        raise turn.error.to_error()
    prompt_chars = len(msgspec.json.encode(request.messages))
    message = turn.message(request.model, new_id, prompt_chars)
    for event in add_waits(event_objects(message, turn.chunk_chars), turn.waits):
        if isinstance(event, float):
            await asyncio.sleep(event)
            continue
        if turn.event_delay_ms:
            await asyncio.sleep(turn.event_delay_ms / 1000)
        yield read_event(msgspec.json.encode(event))


def add_waits(events: Iterable[Json], waits: Sequence[ScriptedWait]) -> Iterator[Json | float]:
    """The events, with the seconds of each wait where it belongs. A delta around a wait is split."""
    left, sent = sorted(waits, key=lambda wait: wait.after_chars), 0
    for event in events:
        delta = event.get("delta") or {}
        key = {"text_delta": "text", "thinking_delta": "thinking"}.get(str(delta.get("type")))
        if key is None:
            is_after = event["type"] == "message_delta" or event.get("content_block", {}).get("type") == "tool_use"
            while is_after and left:
                yield left.pop(0).seconds
            yield event
            continue
        text = delta[key]
        while left and left[0].after_chars < sent + len(text):
            wait = left.pop(0)
            before, text = text[: wait.after_chars - sent], text[wait.after_chars - sent :]
            sent += len(before)
            if before:
                yield {**event, "delta": {**delta, key: before}}
            yield wait.seconds
        sent += len(text)
        yield {**event, "delta": {**delta, key: text}}


def last_text(messages: list[Json]) -> str:
    """All text of the last user message, including tool results."""
    users = [message for message in messages if message.get("role") == "user"]
    return text_in(users[-1]["content"]) if users else ""


def text_in(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        blocks = (part for part in content if isinstance(part, dict))
        return "\n".join(text_in(block.get("text", block.get("content", ""))) for block in blocks)
    return ""
