"""Valid recordings, and the errors for invalid ones."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ModelError, UsageError
from parley.models.base import ModelEvent, ModelRequest
from parley.models.event_synthesis import message_json, synthesize_events
from parley.models.recording import Recorder, RecordingHeader, RecordingWriter, read_recording
from parley.models.redaction import Redactor
from parley.models.replay import Replay
from parley.protocol.base import Json
from parley.stores.records import RecordWriter
from tests.helpers.models import asking, counting, heard, refusal, user
from tests.helpers.models import text as says

HEAD = {"parley_records": "model", "version": 1}
SYSTEM = [{"type": "text", "text": "s"}]
ASKED = {"type": "request", "call": 1, "messages": [{"role": "user", "content": "a"}], "system": SYSTEM}
MORE = {"type": "request", "call": 2, "kept": 1, "messages": [{"role": "user", "content": "b"}]}
TOLD = {"at_ms": 3, "type": "event", "call": 1, "data": {"type": "message_stop"}}
END = {"type": "end", "call": 1}


def recorded(folder: Path, *lines: Json | bytes) -> Path:
    """A file with these lines. Objects after the first are numbered."""
    path = folder / "tape.jsonl"
    path.write_bytes(
        b"".join(
            line
            if isinstance(line, bytes)
            else json.dumps({"n": n, "at_ms": 0, **line} if n else line).encode() + b"\n"
            for n, line in enumerate(lines)
        )
    )
    return path


def test_a_request_is_read_with_what_it_has_in_common_with_the_one_before(tmp_path: Path) -> None:
    first, second = read_recording(recorded(tmp_path, HEAD, ASKED, TOLD, END, MORE)).calls

    assert second.request.messages == [user("a"), user("b")]
    assert second.request.system == first.request.system == [{"type": "text", "text": "s"}]
    assert [(at_ms, event.type) for at_ms, event in first.events] == [(3, "message_stop")]
    assert (first.end is not None, second.end) == (True, None)


def test_a_torn_last_line_is_what_a_crash_leaves_behind(tmp_path: Path) -> None:
    assert read_recording(recorded(tmp_path, HEAD, ASKED, b'{"n":2,"at_ms":3,"ty')).calls[0].events == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "is not a recording of a model: it has no header"),
        ([b"[[turn]]\n"], "is not a recording of a model: its first line is not a header"),
        ([{**HEAD, "version": 9}, ASKED], "has version 9; only version 1 is supported"),
        (
            [{**HEAD, "parley_records": "conversation"}],
            ", but a recording of a conversation (for `parley replay FILE`)",
        ),
        ([{**HEAD, "parley_records": "song"}], ", but 'song'"),
        ([HEAD], "contains no request"),
        ([HEAD, ASKED, b"{]\n", END], ":3: "),
        ([HEAD, ASKED, b'"\xff"\n', END], ":3: "),
        ([HEAD, ASKED, {"type": "song"}], ":3: invalid value 'song'"),
        ([HEAD, ASKED, ASKED], ":3: there are two requests of call 1"),
        ([HEAD, TOLD], ":2: there is no request of call 1 before this line"),
        ([HEAD, ASKED, END, TOLD], ":4: call 1 has already ended"),
        ([HEAD, ASKED, {**TOLD, "n": 3}], ":3: found record 3, expected record 2"),
        ([HEAD, ASKED, HEAD], ":3: "),
        ([HEAD, MORE], ":2: request 2 reuses 1 messages of the previous request, which has 0"),
        ([HEAD, ASKED, {**TOLD, "data": {"no": 1}}], ":3: "),
    ],
)
def test_what_is_not_a_recording_is_reported_in_one_sentence(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_recording(recorded(tmp_path, *lines))

    assert said in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_recording_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read recording .*: No such file"):
        read_recording(tmp_path / "none")


USAGE = {"input_tokens": 1, "output_tokens": 1}
SECRET = "open-sesame-please"


class Said:
    """A model with a list of answers. An error is raised after the events before it."""

    def __init__(self, *answers: list[ModelEvent | ModelError]) -> None:
        self._answers = list(answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for event in self._answers.pop(0):
            if isinstance(event, ModelError):
                raise event
            yield event

    async def close(self) -> None:
        pass


def answer(*blocks: Any, chunk_chars: int = 40) -> list[ModelEvent | ModelError]:
    return [*synthesize_events(message_json(list(blocks), id="msg_1", model="m", usage=USAGE), chunk_chars)]


def writer(path: Path, complain: Any = None, **places: str) -> RecordingWriter:
    ticks = count(0)
    return RecordingWriter(
        path,
        RecordingHeader(places=places),
        Redactor([SECRET]),
        lambda: next(ticks) / 1000,
        complain or (lambda _: None),
    )


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_a_recording_plays_what_was_recorded_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    first, second = (
        answer(says("Grüße, 世界")),
        answer({"type": "tool_use", "id": "t", "name": "Read", "input": {"a": 1}}),
    )
    live = Recorder(Said(first, second), writer(path))
    asked = [asking(user("a")), asking(user("a"), user("b"))]

    async def both(model: Any) -> list[list[ModelEvent]]:
        return [await heard(model, request) for request in asked]

    recorded = await both(live)
    await live.close()

    assert await both(Replay(path)) == recorded == [first, second]
    assert [event.raw for event in await heard(Replay(path), asked[0])] == [
        event.raw for event in first if isinstance(event, ModelEvent)
    ]


def test_a_recording_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    writer(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="already exists; recordings are not overwritten"):
        writer(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")

    with pytest.raises(UsageError):
        writer(tmp_path / "link")
    assert not (tmp_path / "target").exists()


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot create .*: No such file"):
        writer(tmp_path / "none" / "tape.jsonl")


async def test_a_secret_is_on_no_line_also_where_it_lies_across_deltas(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    said = answer(
        {"type": "thinking", "thinking": f"It is {SECRET}.", "signature": ""},
        says(f"The word is {SECRET}!"),
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": f"echo {SECRET}"}},
        chunk_chars=3,
    )
    failed: list[ModelEvent | ModelError] = [ModelError(f"{SECRET} was refused", status=401, retryable=True)]
    model = Recorder(Said(said, failed), writer(path))
    request = asking(user(f"Say {SECRET}"), system=[says(SECRET)], tools=[{"name": "x", "description": SECRET}])
    await heard(model, request)
    await refusal(model, request)

    written = path.read_text()
    texts = "".join(line["data"]["delta"].get("text", "") for line in lines(path) if "delta" in line.get("data", {}))
    assert SECRET not in written
    assert texts == "The word is [redacted]!"
    assert await heard(Replay(path, redaction=Redactor([SECRET])), request)


async def test_a_request_on_the_recording_carries_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    model = Recorder(Said(answer(), answer()), writer(path))
    system = [{**says("Be kind."), "cache_control": {"type": "ephemeral"}}]
    await heard(model, asking(user("a"), system=system))
    await heard(model, asking(user("a"), user("b"), system=system))
    first, second = (line for line in lines(path) if line.get("type") == "request")

    assert (first["messages"], first["system"]) == ([user("a")], [says("Be kind.")])
    assert (second["kept"], second["messages"], "system" in second) == (1, [user("b")], False)


async def test_what_was_said_before_a_crash_is_on_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    model = Recorder(Said(answer(says("one"), says("two"))), writer(path))

    async def until_the_first_block_ends() -> int:
        async with aclosing(model.stream(asking(user("a")))) as events:
            async for event in events:
                if event.type == "content_block_stop":
                    return len(lines(path))
        raise AssertionError

    assert await until_the_first_block_ends() == 6


async def test_a_call_that_failed_fails_again_with_all_it_said(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    busy = ModelError("busy", status=429, kind="rate_limit_error", retryable=True, retry_after_seconds=2)
    live = Recorder(Said([busy], answer(says("Hi"))), writer(path))
    await refusal(live, asking(user("a")))
    await heard(live, asking(user("a")))
    again = Replay(path)

    assert await refusal(again, asking(user("a"))) == vars(busy)
    assert await heard(again, asking(user("a"))) == answer(says("Hi"))


async def test_an_answer_that_was_interrupted_plays_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    live = Recorder(Said(answer(says("one"))), writer(path))

    async def hang_up() -> None:
        async with aclosing(live.stream(asking(user("a")))) as events:
            async for _ in events:
                return

    await hang_up()

    assert lines(path)[-1] == {"n": 3, "at_ms": 3.0, "type": "end", "call": 1, "closed": True}
    with pytest.raises(ModelError, match="ends in the middle of this answer"):
        await heard(Replay(path), asking(user("a")))


async def test_calls_side_by_side_share_one_recording(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    live = Recorder(Said(answer(says("one")), answer(says("two"))), writer(path))

    one, two = await asyncio.gather(heard(live, asking(user("a"))), heard(live, asking(user("b"))))
    again = Replay(path)

    assert await heard(again, asking(user("b"))) == two
    assert await heard(again, asking(user("a"))) == one


async def test_a_recording_that_cannot_be_written_is_reported_once_and_the_run_continues(tmp_path: Path) -> None:
    told: list[str] = []
    tape = writer(tmp_path / "tape.jsonl", told.append)
    tape._file.close()
    tape._file = RecordWriter(os.open("/dev/full", os.O_WRONLY))
    model = Recorder(Said(answer(says("one")), answer(says("two"))), tape)

    assert await heard(model, asking(user("a"))) == answer(says("one"))
    assert await heard(model, asking(user("b"))) == answer(says("two"))
    assert told == [
        f"cannot write to recording {tmp_path}/tape.jsonl; the recording is incomplete: No space left on device"
    ]


async def test_ids_do_not_matter_to_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    live = Recorder(Said(answer(says("one"))), writer(path, cwd="/old/place"))
    await heard(live, asking(user(f"look at /old/place/a, {counting('0123456789abcde')()}")))

    assert await heard(Replay(path, places={"cwd": "/new"}), asking(user("look at /new/a, fedcba98765432100")))
