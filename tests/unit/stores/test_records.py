"""Files of numbered records: what a crash leaves, one writer at a time, and what is not such a file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from parley.errors import UsageError
from parley.protocol.base import Struct
from parley.stores.records import CONVERSATION, MODEL, RecordWriter, read_records


class Title(Struct):
    title: str = ""


class Word(Struct):
    word: str


WORDS = msgspec.json.Decoder(Word)


def make(path: Path, *words: str) -> RecordWriter:
    writer = RecordWriter.create(path, MODEL, Title(title="t"))
    for at_ms, word in enumerate(words):
        writer.append(at_ms, Word(word=word))
    return writer


def words_of(path: Path) -> list[tuple[int, float, str]]:
    return [(record.number, record.at_ms, record.decode(WORDS).word) for record in read_records(path, MODEL).records]


def test_records_are_lines_with_a_number_and_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    writer = make(path, "one")
    writer.append(2.00049, {})
    writer.close()

    assert path.read_text() == (
        '{"parley_records":"model","version":1,"title":"t"}\n{"n":1,"at_ms":0,"word":"one"}\n{"n":2,"at_ms":2.0}\n'
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_records(path, MODEL).decode_header(Title) == Title(title="t")


@pytest.mark.parametrize("kept_bytes", [0, 1, 10, 33])
def test_a_line_that_a_crash_has_cut_is_dropped_and_the_file_continues(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "file"
    make(path, "one", "two").close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"n":3,"at_ms":3,"word":"three"}\n'[:kept_bytes])

    writer, found = RecordWriter.resume(path, MODEL)
    writer.append(9, Word(word="last"))
    writer.close()

    count = 3 if kept_bytes == 33 else 2
    assert len(found.records) == count
    assert words_of(path)[:2] == [(2, 0, "one"), (3, 1, "two")]
    assert words_of(path)[count:] == [(count + 2, 9, "last")]


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    writer = make(path)

    with pytest.raises(FileExistsError):
        make(path)
    with pytest.raises(BlockingIOError):
        RecordWriter.resume(path, MODEL)
    writer.close()
    RecordWriter.resume(path, MODEL)[0].close()


def test_nothing_is_written_after_a_record_that_was_cut() -> None:
    writer = RecordWriter(os.open("/dev/full", os.O_WRONLY))

    with pytest.raises(OSError, match="No space left") as raised:
        writer.append(0, {"word": "one"})
    assert (raised.value.errno, writer.is_open) == (errno.ENOSPC, False)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "file is not a recording of a conversation: it has no header"),
        (b'{"parley_records":"conversation"', "file is not a recording of a conversation: it has no header"),
        (b'{"parley_recording":1,"command":[]}\n', "conversation: its first line is not a header of Parley's records"),
        (b"\xff\n", "conversation: its first line is not a header of Parley's records"),
        (b'{"parley_records":"evaluation","version":1}\n', ", but a result of parley eval (for `parley eval compare`)"),
        (b'{"parley_records":"song","version":1}\n', "file is not a recording of a conversation, but 'song'"),
        (b'{"parley_records":"conversation","version":2}\n', "file has version 2; only version 1 is supported"),
        (b'{"parley_records":"conversation","version":1}\n{"n":2,"at_ms":0}\n', "found record 2, expected record 1"),
        (b'{"parley_records":"conversation","version":1}\n[' + b"[" * 100_000 + b"\n", "file:2: "),
    ],
)  # fmt: skip
def test_a_file_that_is_something_else_is_refused_and_left_as_it_is(tmp_path: Path, data: bytes, error: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    for read in (read_records, RecordWriter.resume):
        with pytest.raises(UsageError) as raised:
            read(path, CONVERSATION)
        assert error in str(raised.value)
        assert "\n" not in str(raised.value)

    assert path.read_bytes() == data
