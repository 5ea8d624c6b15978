"""Valid recordings, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.models.recording.format import read_recording
from tests.helpers.models import user

HEAD = b'{"type":"tape","version":1}\n'
ASKED = (
    b'{"type":"request","number":1,"messages":[{"role":"user","content":"a"}],"system":[{"type":"text","text":"s"}]}\n'
)
MORE = b'{"type":"request","number":2,"kept":1,"messages":[{"role":"user","content":"b"}]}\n'
TOLD = b'{"type":"event","number":1,"at_ms":3,"data":{"type":"message_stop"}}\n'
END = b'{"type":"end","number":1}\n'


def recorded(folder: Path, *lines: bytes) -> Path:
    path = folder / "tape.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_a_request_is_read_with_what_it_has_in_common_with_the_one_before(tmp_path: Path) -> None:
    first, second = read_recording(recorded(tmp_path, HEAD, ASKED, TOLD, END, MORE)).exchanges

    assert second.request.messages == [user("a"), user("b")]
    assert second.request.system == first.request.system == [{"type": "text", "text": "s"}]
    assert [(at_ms, event.type) for at_ms, event in first.events] == [(3, "message_stop")]
    assert (first.end is not None, second.end) == (True, None)


def test_a_torn_last_line_is_what_a_crash_leaves_behind(tmp_path: Path) -> None:
    assert read_recording(recorded(tmp_path, HEAD, ASKED, TOLD[:-20])).exchanges[0].events == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "is not a recording: the file is empty"),
        ([b"[[turn]]\n"], "is not a recording: line 1"),
        ([ASKED], "is not a recording: the first line is not a header"),
        ([b'{"type":"tape","version":9}\n', ASKED], "has version 9; only version 1 is supported"),
        ([HEAD], "contains no request"),
        ([HEAD, ASKED, b"{]\n", END], ": line 3: "),
        ([HEAD, ASKED, b'"\xff"\n', END], ": line 3: "),
        ([HEAD, ASKED, b'{"type":"song"}\n'], ": line 3: "),
        ([HEAD, ASKED, ASKED], "line 3: there are two requests with the number 1"),
        ([HEAD, TOLD], "line 2: there is no request 1 before this line"),
        ([HEAD, ASKED, END, TOLD], "line 4: request 1 has already ended"),
        ([HEAD, ASKED, HEAD], "line 3: only the first line can be a header"),
        ([HEAD, MORE], "line 2: request 2 reuses 1 messages of the previous request, which has 0"),
        ([HEAD, ASKED, b'{"type":"event","number":1,"data":{"no":1}}\n'], ": line 3: "),
    ],
)
def test_what_is_not_a_recording_is_reported_in_one_sentence(tmp_path: Path, lines: list[bytes], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_recording(recorded(tmp_path, *lines))

    assert said in str(raised.value)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_recording_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read recording .*: No such file"):
        read_recording(tmp_path / "none")
