"""Fake models that need no key and no network: `scripted:FILE` and `offline`.

`scripted:FILE` plays a script file (script.py). `scripted:{"turn": [...]}` has the script itself, for an engine that
cannot read the file: on a gateway.

`offline` needs no file. It follows directives in the prompt, one per line:

    say TEXT                 answer with this text
    think TEXT               think this before answering
    call TOOL {"json": 1}    call a tool; consecutive calls are sent together
    show                     answer with the tool results
    wait SECONDS             wait; what comes before it has been sent
    fail STATUS TEXT         fail like the API with this status

Without directives it answers with a short explanation and repeats the prompt. Directives are played in parts: each
part ends with its tool calls, and the next model call plays the next part.

The prompt is the last user text. Earlier texts in the same message are ignored: a failed or interrupted turn leaves
them there next to the new prompt.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parley.errors import UsageError
from parley.models.base import Model, ModelEvent, ModelRequest, ModelSetup, find_model_file, read_model_file
from parley.models.script import (
    Script,
    ScriptedCall,
    ScriptedError,
    ScriptedTurn,
    ScriptedWait,
    ScriptPlayer,
    play,
    read_script,
    text_in,
)
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    from parley.models.http.call import Deadlines

DIRECTIVES = ("say", "think", "call", "show", "wait", "fail")
NOTE_PREFIXES = ("<hook-context ", "<mcp-server ", "<deferred-tools>")
GREETING = (
    "This is Parley's offline model: a fake model without key and network. "
    "It follows directives, one per line: say TEXT, think TEXT, call TOOL JSON, show, wait SECONDS, fail STATUS. "
    "You said: "
)


class Scripted:
    """Plays one script from start to end."""

    def __init__(
        self, script: Script | Path, new_id: Callable[[], str], deadlines: Callable[[], Deadlines] | None = None
    ) -> None:
        """The deadlines apply to turns with a fault. Raises UsageError."""
        self._player = ScriptPlayer(script if isinstance(script, Script) else load(script))
        self._new_id = new_id
        self._deadlines = deadlines

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        """Raises UsageError."""
        is_script = name.startswith("{")
        return cls(
            read_script(name, "in the name of the model")
            if is_script
            else find_model_file(setup.cwd, name, setup.environment),
            setup.new_id,
            setup.deadlines,
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        turn = self._player.turn_for(request)
        events = play(turn, request, self._new_id)
        if turn.fault is not None:
            from parley.models.faults import read_fault
            from parley.models.wrapping import apply_fault

            deadlines = self._deadlines() if self._deadlines is not None else None
            events = apply_fault(events, read_fault(turn.fault), deadlines)
        async with aclosing(events) as stream:
            async for event in stream:
                yield event

    async def close(self) -> None:
        pass


def load(path: Path) -> Script:
    """Raises UsageError."""
    try:
        return read_script(read_model_file(path).decode(), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read script {path}: {exc}") from None


class Offline:
    """Answers from the prompt alone."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id

    @classmethod
    def open(cls, setup: ModelSetup, name: str) -> Model:
        return cls(setup.new_id)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async for event in play(plan_turn(request.messages), request, self._new_id):
            yield event

    async def close(self) -> None:
        pass


class Directive(Struct, frozen=True):
    word: str
    rest: str


def plan_turn(messages: list[Json]) -> ScriptedTurn:
    """Plan the next answer. A pure function of the conversation."""
    at = last_prompt(messages)
    prompt = prompt_in(messages[at]["content"]) if at >= 0 else ""
    directives = parse(prompt)
    if not directives:
        return ScriptedTurn(text=GREETING + prompt)
    parts = split(directives)
    done = sum(message["role"] == "assistant" for message in messages[at + 1 :])
    if done >= len(parts):
        return ScriptedTurn(text="Done.")
    return build_turn(parts[done], results_after(messages, at))


def last_prompt(messages: list[Json]) -> int:
    """The index of the last user message; tool results do not count. -1 if not found."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user" and is_from_user(messages[at]["content"]):
            return at
    return -1


def is_from_user(content: Any) -> bool:
    return isinstance(content, str) or any(
        block.get("type") != "tool_result" and not is_note(block) for block in content
    )


def is_note(block: Json) -> bool:
    """Whether the engine added this text. Notes about hooks, servers and tools are not prompts."""
    return block.get("type") == "text" and block["text"].startswith(NOTE_PREFIXES)


def prompt_in(content: Any) -> str:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block.get("type") == "text" and not is_note(block)]
    return texts[-1] if texts else ""


def parse(prompt: str) -> list[Directive]:
    found = []
    for line in prompt.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word in DIRECTIVES and (rest.strip() or word == "show"):
            found.append(Directive(word, rest.strip()))
    return found


def split(directives: list[Directive]) -> list[list[Directive]]:
    """Split into parts, one per model call. A part ends after its tool calls or at a failure."""
    parts: list[list[Directive]] = [[]]
    for directive in directives:
        current = parts[-1]
        if (current and current[-1].word == "fail") or (
            current and current[-1].word == "call" and directive.word != "call"
        ):
            parts.append([directive])
        else:
            current.append(directive)
    return parts


def results_after(messages: list[Json], at: int) -> str:
    return "\n".join(text_in(m["content"]) for m in messages[at + 1 :] if m["role"] == "user")


def build_turn(part: list[Directive], results: str) -> ScriptedTurn:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ScriptedCall] = []
    waits: list[ScriptedWait] = []
    for directive in part:
        match directive.word:
            case "say":
                texts.append(directive.rest)
            case "show":
                texts.append(results or "(no tool results yet)")
            case "think":
                thoughts.append(directive.rest)
            case "wait":
                sent = len("\n".join(thoughts)) + len("\n".join(texts))
                waits.append(ScriptedWait(after_chars=sent, seconds=parse_number(directive.rest)))
            case "call":
                calls.append(parse_call(directive.rest))
            case "fail":
                seconds = sum(wait.seconds for wait in waits)
                return ScriptedTurn(error=parse_fault(directive.rest), delay_ms=seconds * 1000)
    first = [wait for wait in waits if wait.after_chars == 0]
    return ScriptedTurn(
        thinking="\n".join(thoughts) if thoughts else None,
        text="\n".join(texts) if texts else (None if calls else "Done."),
        tools=calls,
        delay_ms=sum(wait.seconds for wait in first) * 1000,
        waits=waits[len(first) :],
    )


def parse_call(text: str) -> ScriptedCall:
    name, _, arguments = text.partition(" ")
    try:
        value = msgspec.json.decode(arguments) if arguments.strip() else {}
    except msgspec.DecodeError:
        value = arguments
    return ScriptedCall(name=name, input=value if isinstance(value, dict) else arguments)


def parse_fault(text: str) -> ScriptedError:
    status, _, message = text.partition(" ")
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 529: "overloaded_error"}
    if not status.isdecimal():
        return ScriptedError(message=text)
    return ScriptedError(
        status=int(status),
        type=kinds.get(int(status), "api_error"),
        message=message or "the prompt requested this failure",
    )


def parse_number(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
