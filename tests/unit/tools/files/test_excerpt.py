"""Excerpts of texts by line numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.tools.files.read import LONGEST_LINE_CHARS, MOST_CHARS, excerpt

PIECES = st.sampled_from([
    b"a", b"\n", b"\n\n", b"\r", b"\r\n", b"\0", "é".encode(), "漢字".encode(), b"\xe4", b"\xe4\xb8", b"\xf0\x9f",
    b"\xef\xbb\xbf", b"x" * LONGEST_LINE_CHARS, b"y" * (MOST_CHARS // 3),
])  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join), st.integers(1, 5))
def test_lines_that_are_decoded_together_are_those_that_are_decoded_one_by_one(body: bytes, first: int) -> None:
    whole = excerpt(body, first, None)

    # An excerpt that ends before the last line is decoded line by line.
    singles = [excerpt(body + b"\n", number, 1) for number in range(first, first + len(whole.lines))]
    assert whole.lines == [line for single in singles for line in single.lines]
    assert whole.some_cut == any(single.some_cut for single in singles)
    assert whole.total == body.count(b"\n") + bool(body)
    assert whole.out_of_room == (first <= whole.total and first + len(whole.lines) - 1 < whole.total)
