"""Valid recordings, and the errors for invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.errors import UsageError
from parley.models.recording.format import read_recording
from parley.protocol.base import Json
from tests.helpers.models import user

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
