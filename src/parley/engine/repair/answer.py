"""The events of an answer with its tool calls and its thinking as blocks, where a model wrote them as text. Pure.

    repair = AnswerRepair(is_tool, is_quoted, new_id)
    for event in stream:
        for event in repair.feed(event): ...
    repair.written          # the calls that were text: id -> text

Most answers pass unchanged, event by event. Text that may begin a call or thinking is held back until that is known;
from the beginning of a call on, until its block ends.

See also: `text_calls.py` for the formats; calls are repaired and checked after this like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from parley.models.base import Delta, ModelEvent
from parley.protocol.base import Json

if TYPE_CHECKING:
    from parley.engine.repair.text_calls import TextCall

SUSPECT = frozenset("<`[{◁")
"""How a call or thinking may begin. All that is needed to read other answers is in this file."""


class AnswerRepair:
    """Changes the events of one answer."""

    def __init__(
        self, is_tool: Callable[[str], bool] | None, is_quoted: Callable[[TextCall], bool], new_id: Callable[[], str]
    ) -> None:
        """`is_tool`: whether a name means a tool; None if there are none."""
        self.written: dict[str, str] = {}
        """The ids of calls that were text, and the text."""
        self.is_unclear = False
        """Whether the answer has a call as text which was not taken."""
        self._is_tool = is_tool
        self._is_quoted = is_quoted
        self._new_id = new_id
        self._indexes: dict[int, int] = {}
        """The index of each block as it is sent."""
        self._next = 0
        self._has_content = False
        """Whether the answer has text."""
        self._has_calls = False
        """Whether it has calls of its own. Then text is not taken for calls: some servers send both."""
        self._calls: list[tuple[TextCall, str]] = []
        """The calls in its text, and the text. They become blocks when it ends."""
        self._thoughts: list[str] = []
        self._text: HeldText | None = None
        """The text block that is open."""

    def feed(self, event: ModelEvent) -> Iterable[ModelEvent]:
        """The events to use in place of this one."""
        text = self._text
        if event.type == "content_block_delta":
            if text is not None and event.index == text.index:
                return self._add_text(text, event)
            if event.delta is not None and event.delta.thinking:
                self._thoughts.append(event.delta.thinking)
            return (self._renumber(event),)
        if event.type == "content_block_start" and event.content_block is not None:
            if event.content_block.get("type") == "text" and text is None:
                self._text = HeldText(event)
                return () if not event.content_block.get("text") else self._begin(self._text)
            self._has_calls = self._has_calls or event.content_block.get("type") == "tool_use"
            return (self._start(event),)
        if event.type == "content_block_stop":
            if text is not None and event.index == text.index:
                self._text = None
                return self._end_block([*self._end_text(text, event)], event)
            return self._end_block([self._renumber(event)], event)
        if event.type == "message_delta":
            return [*self._make_calls(event), self._correct(event)]
        return (event,)

    # Text.

    def _add_text(self, text: HeldText, event: ModelEvent) -> Iterable[ModelEvent]:
        piece = event.delta.text if event.delta is not None else ""
        if text.mode == "text" and text.has_begun and not text.held and SUSPECT.isdisjoint(piece):
            text.seen.append(piece)
            return (self._renumber(event),)
        text.held.append(event)
        text.pending += piece
        if text.mode == "json":
            text.mode = "text"  # it may turn out to be no call
        return [] if text.mode in ("call", "harmony") else [*self._scan(text)]

    def _scan(self, text: HeldText) -> Iterator[ModelEvent]:
        """Release what is text or thinking, and hold what may be a call."""
        if text.is_after_tag:
            # The tag ends with its line.
            text.pending = text.pending.lstrip()
            if not text.pending:
                return
            text.is_after_tag = False
        if text.mode == "think":
            yield from self._scan_thought(text)
            if text.mode == "text":
                yield from self._scan(text)
            return
        kind, at = self._find_mark(text)
        if kind == "undecided":
            return
        if kind == "":
            yield from self._release(text)
            return
        before, rest = text.pending[:at], text.pending[at:]
        if before.strip() or text.has_begun:
            yield from self._begin(text)
            if before:
                text.seen.append(before)
                yield self._delta(text.index, "text_delta", "text", before)
        elif kind == "json":
            text.mode = kind
            return
        text.pending, text.held = rest, [ModelEvent("")]
        if kind == "think":
            text.mode, text.pending, text.is_after_tag = "think", skip_tag(rest), True
            yield self._start_block(text.index, {"type": "thinking", "thinking": "", "signature": ""})
            yield from self._scan(text)
        elif kind == "token":
            text.pending, text.is_after_tag = skip_token(rest), True
            yield from self._scan(text)
        elif kind == "end_think":
            if text.has_begun:
                # It began without a tag: what was sent as text was thinking.
                self._thoughts.append("".join(text.seen))
                yield self._stop_block(text.index, {"type": "thinking", "thinking": "", "signature": ""})
            text.restart(skip_tag(rest))
            yield from self._scan(text)
        else:
            text.mode = kind

    def _scan_thought(self, text: HeldText) -> Iterator[ModelEvent]:
        from parley.engine.repair.marks import END_THINK, find_open_tag

        if (closing := END_THINK.search(text.pending)) is not None:
            yield from self._think(text, text.pending[: closing.start()])
            yield self._stop_block(text.index)
            text.restart(text.pending[closing.end() :])
            return
        at = find_open_tag(text.pending)
        thought, text.pending = text.pending[:at], text.pending[at:]
        yield from self._think(text, thought)

    def _think(self, text: HeldText, thought: str) -> Iterator[ModelEvent]:
        if thought:
            self._thoughts.append(thought)
            yield self._delta(text.index, "thinking_delta", "thinking", thought)

    def _find_mark(self, text: HeldText) -> tuple[str, int]:
        """What the pending text contains, and where: a mark, something undecided, or nothing (an empty kind)."""
        if not text.has_begun and not text.pending.strip():
            return "undecided", 0
        if SUSPECT.isdisjoint(text.pending):
            return "", 0
        from parley.engine.repair.marks import find_mark

        return find_mark(text.pending, text.seen, self._is_tool)

    def _release(self, text: HeldText) -> Iterator[ModelEvent]:
        """The held text is only text."""
        has_events = all(event.type for event in text.held)
        if not text.pending and not (has_events and text.held):
            return
        yield from self._begin(text)
        text.seen.append(text.pending)
        if has_events:
            yield from map(self._renumber, text.held)
        else:
            yield self._delta(text.index, "text_delta", "text", text.pending)
        text.pending, text.held = "", []

    def _begin(self, text: HeldText) -> Iterable[ModelEvent]:
        if text.has_begun:
            return ()
        text.has_begun = True
        return (self._start(text.start),)

    def _end_text(self, text: HeldText, stop: ModelEvent) -> Iterator[ModelEvent]:
        if text.mode == "think":
            yield from self._think(text, text.pending)
            yield self._stop_block(text.index)
            return
        calls: list[TextCall] = []
        if text.mode == "harmony":
            yield from self._end_harmony(text)
            return
        if text.mode in ("call", "json"):
            calls = self._read_calls(text.pending)
        if not calls:
            if text.pending or not text.is_restarted:
                yield from self._begin(text)
            yield from self._release(text)
        self._has_content = self._has_content or bool("".join(text.seen).strip())
        self.is_unclear = self.is_unclear or (not calls and self._seems_call(text))
        if text.has_begun:
            yield self._renumber(stop)
        self._calls += [(call, text.pending) for call in calls]

    def _end_harmony(self, text: HeldText) -> Iterator[ModelEvent]:
        """Channels: analysis is thinking, commentary that is addressed to a tool is a call."""
        from parley.engine.repair.marks import split_channels

        parts = list(split_channels(text.pending))
        if not parts:
            yield from self._release(text)
        if text.has_begun:
            yield self._stop_block(text.index)
        for channel, content, whole in parts:
            calls = self._read_calls(whole) if "to=" in whole.partition("<|message|>")[0] else []
            self._calls += [(call, whole) for call in calls]
            if not calls and content.strip():
                kind = "thinking" if channel == "analysis" else "text"
                self._has_content = self._has_content or kind == "text"
                yield from self._make_block({"type": kind, kind: ""}, f"{kind}_delta", kind, content)

    # Calls.

    def _read_calls(self, text: str) -> list[TextCall]:
        if self._is_tool is None:
            return []
        from parley.engine.repair.text_calls import read_calls

        calls = read_calls(text, self._is_tool)
        return [] if any(map(self._is_quoted, calls)) else calls

    def _seems_call(self, text: HeldText) -> bool:
        """Whether an answer begins or ends with a call of a tool which was not taken."""
        whole = "".join(text.seen)
        if self._is_tool is None or not whole.rstrip().endswith(("}", ">", "]", "```")):
            return False
        from parley.engine.repair.marks import TAGGED, UNREAD_CALL, is_code

        names = re.findall(r"\w+", whole) if TAGGED.match(whole.lstrip()) is not None else []
        if (found := UNREAD_CALL.search(whole)) is not None and not is_code(whole[: found.start()]):
            names.append(found[found.lastindex or 0])
        return any(map(self._is_tool, names))

    def _make_calls(self, ending: ModelEvent) -> Iterator[ModelEvent]:
        """The calls in the text of an answer, as blocks at its end."""
        is_cut_off = ending.delta is not None and ending.delta.stop_reason == "max_tokens"
        if not (self._calls or self._has_content or is_cut_off):
            self._calls = self._read_thoughts()
        calls, self._calls, self._thoughts = self._calls, [], []
        for call, text in [] if self._has_calls else calls:
            id = f"toolu_{self._new_id()}"
            self.written[id] = text
            block = {"type": "tool_use", "id": id, "name": call.name, "input": {}}
            yield from self._make_block(block, "input_json_delta", "partial_json", call.arguments)

    def _read_thoughts(self) -> list[tuple[TextCall, str]]:
        """The calls with which the thinking of an answer ends that has nothing else."""
        thoughts = "".join(self._thoughts)
        if not thoughts or self._is_tool is None:
            return []
        from parley.engine.repair.marks import TAGGED, is_code

        for tag in TAGGED.finditer(thoughts):
            text = thoughts[tag.start() :]
            if not is_code(thoughts[: tag.start()]) and (calls := self._read_calls(text)):
                return [(call, text) for call in calls]
        return []

    # Events.

    def _end_block(self, events: list[ModelEvent], stop: ModelEvent) -> list[ModelEvent]:
        """The events that end a block. The last one says how the answer ends, if it does."""
        if (ending := stop.ending) is not None:
            stop.ending = None
            events += self._make_calls(ending)
            if events:
                events[-1].ending = self._correct(ending)
        return events

    def _correct(self, ending: ModelEvent) -> ModelEvent:
        """An answer with calls ends because of them."""
        if self.written and ending.delta is not None and ending.delta.stop_reason == "end_turn":
            ending.delta.stop_reason = "tool_use"
            ending.raw = change(ending.raw, delta={"stop_reason": "tool_use", "stop_sequence": None})
        return ending

    def _start(self, event: ModelEvent) -> ModelEvent:
        self._indexes[event.index] = self._next
        self._next += 1
        return self._renumber(event)

    def _start_block(self, index: int, block: Json) -> ModelEvent:
        raw = msgspec.json.encode({"type": "content_block_start", "index": index, "content_block": block})
        return self._start(ModelEvent("content_block_start", index, content_block=block, raw=raw))

    def _delta(self, index: int, kind: str, field: str, text: str) -> ModelEvent:
        delta = {"type": kind, field: text}
        raw = msgspec.json.encode({"type": "content_block_delta", "index": index, "delta": delta})
        return self._renumber(ModelEvent("content_block_delta", index, delta=Delta(**delta), raw=raw))

    def _stop_block(self, index: int, becomes: Json | None = None) -> ModelEvent:
        raw = msgspec.json.encode({"type": "content_block_stop", "index": index})
        return self._renumber(ModelEvent("content_block_stop", index, raw=raw, becomes=becomes))

    def _make_block(self, block: Json, kind: str, field: str, content: str) -> Iterator[ModelEvent]:
        """A whole block that the stream does not have. Its own index cannot be that of another."""
        index = -1 - self._next
        yield self._start_block(index, block)
        yield self._delta(index, kind, field, content)
        yield self._stop_block(index)

    def _renumber(self, event: ModelEvent) -> ModelEvent:
        index = self._indexes.get(event.index, event.index)
        if index == event.index:
            return event
        raw = change(event.raw, index=index) if event.raw else b""
        joined = tuple(change(part, index=index) for part in event.joined)
        return msgspec.structs.replace(event, index=index, raw=raw, joined=joined)


class HeldText:
    """A text block that is open."""

    def __init__(self, start: ModelEvent) -> None:
        self.start = start
        self.index = start.index
        self.mode = "text"
        """`text`, `think` for the thinking in it, or what is held: a `call` or `harmony` channels to its end, `json`
        until it is clear whether it is a call."""
        self.has_begun = False
        self.is_after_tag = False
        """Whether only space has followed a tag."""
        self.is_restarted = False
        """Whether the block is what follows thinking."""
        self.seen: list[str] = []
        self.pending = ""
        """Text that was not released."""
        self.held: list[ModelEvent] = []
        """Its events; one without a type if they have more than that."""

    def restart(self, pending: str) -> None:
        """The rest is a block of its own."""
        self.mode, self.has_begun, self.is_restarted, self.is_after_tag = "text", False, True, True
        self.seen, self.pending, self.held = [], pending, [ModelEvent("")]


def skip_tag(text: str) -> str:
    """What follows the tag that a text begins with."""
    return re.split(r"[>\]▷]", text, maxsplit=1)[-1]


def skip_token(text: str) -> str:
    from parley.engine.repair.marks import TOKEN

    return TOKEN.sub("", text, count=1)


def change(raw: bytes, **fields: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(raw), **fields})
