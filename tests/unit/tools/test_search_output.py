"""How hits are told, page by page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from parley.tools.base import ToolOutput
from parley.tools.search import PAGE_CHARS, OutputPage, mark_incomplete, show_counts, show_files, show_lines

ALL = OutputPage(0, None)


def content(
    found: list[tuple[str, list[bytes]]], page: OutputPage = ALL, *, complete: bool = True, **how: bool
) -> ToolOutput:
    return show_lines(found, page, complete, **{"numbered": True, "gaps": False, **how})


def test_files_are_counted_and_listed() -> None:
    assert show_files(["b", "a"], ALL, True) == ToolOutput(
        content="Found 2 files\nb\na",
        detail={"mode": "files_with_matches", "filenames": ["b", "a"], "numFiles": 2, "totalFiles": 2},
    )


def test_a_page_of_files_says_how_to_continue() -> None:
    assert show_files(["a", "b", "c", "d"], OutputPage(1, 2), True) == ToolOutput(
        content="Found 4 files\nb\nc\n(Showing 2-3 of 4. Continue with offset 3.)",
        detail={
            "mode": "files_with_matches",
            "filenames": ["b", "c"],
            "numFiles": 2,
            "totalFiles": 4,
            "appliedLimit": 2,
            "appliedOffset": 1,
        },
    )


def test_a_last_page_has_no_note() -> None:
    result = show_files(["a", "b"], OutputPage(1, 1), True)

    assert result.content == "Found 2 files\nb"
    assert "appliedLimit" not in result.detail


def test_an_offset_after_the_end_is_reported() -> None:
    assert show_files(["a"], OutputPage(5, 2), True).content == "Nothing at offset 5: there are only 1."
    assert show_files([], OutputPage(5, 2), True).content == "No files found"
    assert "was stopped before offset 5" in str(content([("a", [b"1:x"])], OutputPage(5, 2), complete=False).content)


def test_counts_have_totals_over_all_pages() -> None:
    assert show_counts([("a", 1), ("b", 2)], OutputPage(0, 1), True) == ToolOutput(
        content="a:1\n\nFound 3 total occurrences across 2 files.\n(Showing 1-1 of 2. Continue with offset 1.)",
        detail={
            "mode": "count",
            "numFiles": 2,
            "filenames": [],
            "content": "a:1",
            "numMatches": 3,
            "appliedLimit": 1,
        },
    )
    assert show_counts([("a", 1)], ALL, True).content == "a:1\n\nFound 1 total occurrence across 1 file."
    assert show_counts([], ALL, True).content == "No matches found"


def test_lines_are_reported_with_path_and_number() -> None:
    found = [("a", [b"1-before", b"2:it", b"--", b"9:again"]), ("b", [b"3:x"])]

    assert content(found, gaps=True).content == "a-1-before\na:2:it\n--\na:9:again\n--\nb:3:x"
    assert content(found, gaps=True, numbered=False).content == "a-before\na:it\n--\na:again\n--\nb:x"
    assert content(found, gaps=True).detail["totalLines"] == 6


def test_bytes_that_are_not_text_are_replaced_and_returns_are_dropped() -> None:
    assert content([("a", [b"1:\xff\r"])]).content == "a:1:\ufffd"


def test_a_notice_is_reported_as_it_is() -> None:
    assert content([("a.bin", [b"binary file matches"])]).content == "a.bin: binary file matches"


def test_a_page_of_an_incomplete_search_names_no_total() -> None:
    result = content([("a", [b"1:x", b"2:x", b"3:x"])], OutputPage(0, 2), complete=False)

    assert result.content == "a:1:x\na:2:x\n\n(Showing 1-2. Continue with offset 2.)"
    assert result.detail == {
        "mode": "content",
        "numFiles": 0,
        "filenames": [],
        "content": "a:1:x\na:2:x",
        "numLines": 2,
        "appliedLimit": 2,
    }


def test_no_page_is_longer_than_a_model_can_use() -> None:
    lines = [b"%d:%s" % (number, b"x" * 400) for number in range(1, 200)]

    result = content([("a", lines)])

    assert PAGE_CHARS - 500 < len(result.detail["content"]) <= PAGE_CHARS
    assert result.detail["appliedLimit"] == result.detail["numLines"] < 199


@given(some.lists(some.text("xy", max_size=20), max_size=30), some.integers(1, 7))
def test_pages_put_together_are_the_whole(lines: list[str], limit: int) -> None:
    told: list[str] = []
    while True:
        shown, more = OutputPage(len(told), limit).cut(lines)
        told += shown
        if not more:
            break
        assert len(shown) == limit

    assert told == lines


def test_a_search_that_was_stopped_says_why() -> None:
    late = mark_incomplete(show_files(["a"], ALL, False), "It took too long.")

    assert late.content == "Found more than 1 file\na\n(It took too long.)"
    assert late.detail["timedOut"] is True
