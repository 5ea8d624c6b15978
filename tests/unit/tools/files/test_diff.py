"""Patches: what they say is what happened, whatever happened."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from parley.tools.files import diff
from parley.tools.files.diff import NO_NEWLINE, TextChange

TEXT = some.lists(some.sampled_from(["a", "b", "c", "\n", "\n"]), max_size=60).map("".join)


def applied(old: str, hunks: list[dict[str, Any]]) -> str:
    """The new text, by the hunks alone. Asserts that they fit the old one and count right."""
    before = old.split("\n")
    after: list[str] = []
    done, bare = 0, False
    for hunk in hunks:
        start = hunk["oldStart"] - 1
        after += before[done:start]
        done = start
        assert hunk["newStart"] == len(after) + 1
        counts = {" ": 0, "-": 0, "+": 0}
        last = ""
        for sign, text in ((line[0], line[1:]) for line in hunk["lines"]):
            if sign == "\\":
                bare = bare or last in "+ "
                continue
            counts[sign] += 1
            last = sign
            if sign in " -":
                assert before[done] == text
                done += 1
            if sign in " +":
                after.append(text)
        assert (hunk["oldLines"], hunk["newLines"]) == (counts[" "] + counts["-"], counts[" "] + counts["+"])
    rest = before[done:]
    if rest and rest != [""]:
        return "\n".join(after + rest)
    return "\n".join(after) + ("" if bare or not after else "\n")


@given(old=TEXT, new=TEXT)
def test_hunks_lead_from_the_old_text_to_the_new_one(old: str, new: str) -> None:
    hunks = diff.diff_texts(old.encode(), new.encode())
    assert applied(old, hunks) == new
    assert (hunks == []) == (old == new)


@given(old=TEXT, cuts=some.lists(some.integers(0, 60), max_size=6), new=TEXT)
def test_hunks_of_changes_lead_to_the_changed_text(old: str, cuts: list[int], new: str) -> None:
    places = sorted({min(cut, len(old)) for cut in cuts})
    changes = [TextChange(start, end, new.encode()) for start, end in zip(places[::2], places[1::2], strict=False)]
    after = diff.replaced(old.encode(), changes).decode()
    assert applied(old, diff.diff_edits(old.encode(), changes)) == after


def test_three_lines_stand_around_a_change_and_near_changes_share_a_hunk() -> None:
    old = [f"{number}" for number in range(1, 41)]
    new = ["X" if number in (10, 17, 25) else text for number, text in enumerate(old, 1)]
    hunks = diff.diff_texts("\n".join(old).encode(), "\n".join(new).encode())
    assert [(hunk["oldStart"], hunk["oldLines"]) for hunk in hunks] == [(7, 14), (22, 7)]
    assert hunks[1]["lines"] == [" 22", " 23", " 24", "-25", "+X", " 26", " 27", " 28"]


def test_a_missing_final_newline_is_marked() -> None:
    [hunk] = diff.diff_texts(b"a", b"a\n")
    assert hunk["lines"] == ["-a", NO_NEWLINE, "+a"]


def test_texts_that_differ_over_many_lines_make_one_coarse_hunk() -> None:
    old = "".join(f"{number}\n" for number in range(1500))
    new = "".join(f"{number}\n" for number in range(2, 3000, 2))
    [hunk] = diff.diff_texts(old.encode(), new.encode())
    assert (hunk["oldLines"], hunk["newLines"]) == (1500, 1499)
    assert applied(old, [hunk]) == new


def test_more_than_a_host_can_show_is_left_out() -> None:
    assert diff.diff_texts(b"a" * 300_000, b"b" * 300_000) == []


def test_line_endings_are_not_difference() -> None:
    assert diff.diff_texts(b"a\r\nb\r\n", b"a\nb\n") == []
