"""Keys from the bytes of a terminal, and the text that is edited with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.terminal.interfaces.keyboard import KeyDecoder, KeyPress, LineEditor

PASTE = "\x1b[200~line one\r\nline two\n\x1b[201~"


def decode(*pieces: bytes) -> list[KeyPress]:
    decoder = KeyDecoder()
    return [key for piece in pieces for key in decoder.feed(piece)]


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"y", [KeyPress("text", "y")]),
        ("é你".encode(), [KeyPress("text", "é"), KeyPress("text", "你")]),
        (b"\n", [KeyPress("enter")]),
        (b"\x1b\n", [KeyPress("newline")]),
        (b"\x1b[D\x1b[C", [KeyPress("left"), KeyPress("right")]),
        (b"\x1b[2~\x1b[1;5A\x1bx\x00", []),
        (b"\x1b\x1b[D", [KeyPress("escape"), KeyPress("left")]),
        (PASTE.encode(), [KeyPress("paste", "line one\nline two\n")]),
    ],
)
def test_bytes_are_keys(data: bytes, keys: list[KeyPress]) -> None:
    assert decode(data) == keys


@given(st.integers(1, 60))
def test_keys_may_arrive_in_pieces(cut: int) -> None:
    data = f"a\x1b[D你{PASTE}\n".encode()

    assert decode(data[:cut], data[cut:]) == decode(data)


def test_an_escape_that_is_alone_is_a_key_once_nothing_follows() -> None:
    decoder = KeyDecoder()

    assert decoder.feed(b"\x1b") == []
    assert decoder.waits
    assert decoder.flush() == [KeyPress("escape")]
    assert not decoder.waits


def test_a_paste_that_has_not_ended_is_not_taken_for_an_escape() -> None:
    decoder = KeyDecoder()

    assert decoder.feed(b"\x1b[200~y\n") == []
    assert not decoder.waits


@pytest.mark.parametrize(
    ("data", "text", "at"),
    [
        (b"abc", "abc", 3),
        (b"abc\x7f", "ab", 2),
        (b"ac\x1b[Db", "abc", 2),
        (b"abc\x01x\x05y", "xabcy", 5),
        (b"one two\x17", "one ", 4),
        (b"one two\x15x", "x", 1),
        (b"abc\x1b[D\x1b[D\x0b", "a", 1),
        (b"abc\x01\x1b[3~", "bc", 0),
        (b"a\x1b\nb\x01c", "a\ncb", 3),
        (PASTE.encode() + b"!", "line one\nline two\n!", 19),
        (b"\x7f\x1b[D\x1b[C", "", 0),
    ],
)
def test_text_is_edited_with_keys(data: bytes, text: str, at: int) -> None:
    editor = LineEditor()
    for key in decode(data):
        editor.press(key)

    assert (editor.text, editor.at) == (text, at)
