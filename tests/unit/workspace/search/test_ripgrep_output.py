"""Taking apart what a search program says, in whatever pieces it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from parley.workspace.search.ripgrep import RipgrepOutput

LINES = (
    b"./a.py\x001-before\n./a.py\x002:match\n--\n./a.py\x009:again\n--\n./b\x005:x\x00y\n"
    b'./c.bin: binary file matches (found "\\0" byte around offset 3)\n'
)


def taken(data: bytes, mode: str = "content", size: int = 1 << 20, **how: object) -> RipgrepOutput:
    findings = RipgrepOutput(mode, how.get("hides", lambda path: False), 1 << 20, None)  # type: ignore[arg-type]  # a test
    for start in range(0, len(data), size):
        assert findings.take(data[start : start + size])
    return findings


@given(some.integers(1, 200))
def test_lines_are_gathered_by_file_however_they_are_cut(size: int) -> None:
    assert taken(LINES, size=size).files == [
        ("a.py", [b"1-before", b"2:match", b"--", b"9:again"]),
        ("b", [b"5:x\x00y"]),
        ("c.bin", [b"binary file matches"]),
    ]


def test_names_of_files_are_cut_at_their_ends() -> None:
    assert taken(b"./a\nb\0./c\0", "files").files == [("a\nb", []), ("c", [])]


def test_counts_are_lines_too() -> None:
    assert taken(b"./a:1\x003\n", "count").files == [("a:1", [b"3"])]


def test_nothing_is_kept_of_a_hidden_file() -> None:
    shown = taken(LINES, hides=lambda path: path in ("a.py", "c.bin"))

    assert shown.files == [("b", [b"5:x\x00y"])]


def test_a_file_that_was_handed_over_has_no_name() -> None:
    assert taken(b"<stdin>\x001:x\n./<stdin>\x001:y\n").files == [("", [b"1:x"]), ("<stdin>", [b"1:y"])]


def test_a_name_that_is_not_text_is_kept() -> None:
    assert taken(b"./\xff\x001:x\n").files == [("\udcff", [b"1:x"])]


def test_a_line_that_is_not_finished_is_not_taken() -> None:
    assert taken(b"./a\x001:x\n./a\x002:ha").files == [("a", [b"1:x"])]


def test_no_more_is_read_past_the_limits() -> None:
    by_bytes = RipgrepOutput("content", lambda path: False, 10, None)
    by_lines = RipgrepOutput("content", lambda path: False, 1 << 20, 2)

    assert by_bytes.take(b"./a\x001:x\n")
    assert not by_bytes.take(b"./a\x002:x\n")
    assert by_lines.take(b"./a\x001:x\n./a\x002:x\n")
    assert not by_lines.take(b"./a\x003:x\n")
