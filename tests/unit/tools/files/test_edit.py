"""Edit, on real files: what is replaced, what stays as it is, and what is refused."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from parley.errors import ToolError
from parley.tools.base import ToolOutput
from parley.tools.files.edit import Edit, Write
from parley.tools.files.read import Read
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


def edit(harness: ToolHarness, name: str, old: str, new: str, **more: Any) -> ToolOutput:
    return harness.call(Edit(), file_path=harness.path(name), old_string=old, new_string=new, **more)


def refusal(harness: ToolHarness, name: str, old: str, new: str, **more: Any) -> str:
    """The words of the refusal; the file must be as it was."""
    path = harness.folder / name
    before = path.read_bytes() if path.exists() else None
    words = harness.refusal(Edit(), file_path=str(path), old_string=old, new_string=new, **more)
    assert (path.read_bytes() if path.exists() else None) == before
    return words


def edited(harness: ToolHarness, content: str | bytes, old: str, new: str, **more: Any) -> bytes:
    path = harness.put("a.txt", content)
    edit(harness, "a.txt", old, new, **more)
    return path.read_bytes()


# Replacing.


def test_a_unique_text_is_replaced_and_the_host_sees_what_changed(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "alpha\nbeta\ngamma\nbeta\n")
    result = edit(harness, "a.txt", "alpha", "ALPHA")
    assert path.read_bytes() == b"ALPHA\nbeta\ngamma\nbeta\n"
    assert result == ToolOutput(
        content=f"The file {path} has been updated successfully.",
        detail={
            "filePath": str(path),
            "oldString": "alpha",
            "newString": "ALPHA",
            "originalFile": "alpha\nbeta\ngamma\nbeta\n",
            "structuredPatch": [
                {
                    "oldStart": 1,
                    "oldLines": 4,
                    "newStart": 1,
                    "newLines": 4,
                    "lines": ["-alpha", "+ALPHA", " beta", " gamma", " beta"],
                }
            ],
            "userModified": False,
            "replaceAll": False,
            "contentNotInModelContext": True,
        },
    )


def test_after_a_read_the_model_knows_the_content(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "alpha\nbeta\n")
    harness.call(Read(), file_path=str(path))
    result = edit(harness, "a.txt", "beta", "B", replace_all=True)
    known = "you know its content; there is no need to read it again"
    assert result.content == f"The file {path} has been updated. All occurrences were successfully replaced. ({known})"
    assert "contentNotInModelContext" not in result.detail
    assert "contentNotInModelContext" not in edit(harness, "a.txt", "B", "C").detail


def test_after_a_read_of_a_part_the_model_does_not_know_the_content(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "alpha\nbeta\n")
    harness.call(Read(), file_path=str(path), limit=1)
    assert edit(harness, "a.txt", "beta", "B").detail["contentNotInModelContext"] is True


def test_every_occurrence_is_replaced_where_that_is_asked_for(harness: ToolHarness) -> None:
    assert edited(harness, "a b a b a", "a", "aa", replace_all=True) == b"aa b aa b aa"


def test_very_many_occurrences_are_all_replaced_and_the_line_stays_short(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "old line\n" * 50_000)
    result = edit(harness, "a.txt", "old", "new", replace_all=True)
    assert path.read_bytes() == b"new line\n" * 50_000
    assert len(msgspec.json.encode(result.detail)) < 1_000_000


def test_very_many_occurrences_in_a_crlf_file_are_all_replaced(harness: ToolHarness) -> None:
    assert edited(harness, "a\r\nb\r\n" * 3000, "a\nb", "c\nd", replace_all=True) == b"c\r\nd\r\n" * 3000


def test_special_characters_mean_themselves(harness: ToolHarness) -> None:
    assert edited(harness, r"a.*(b)\1 $&", r".*(b)\1", r"\g<0>\n\\1") == rb"a\g<0>\n\\1 $&"


def test_a_text_is_deleted_by_an_empty_one(harness: ToolHarness) -> None:
    assert edited(harness, "one\ntwo\n", "one\n", "") == b"two\n"


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_the_end_of_the_file_stays_as_it_is(harness: ToolHarness, ending: str) -> None:
    assert edited(harness, f"one\ntwo{ending}", "two", "three") == f"one\nthree{ending}".encode()


def test_the_mode_is_kept(harness: ToolHarness) -> None:
    path = harness.put("run.sh", "echo a\n")
    path.chmod(0o711)
    edit(harness, "run.sh", "a", "b")
    assert path.stat().st_mode & 0o7777 == 0o711


def test_the_input_is_shown_with_its_default(harness: ToolHarness) -> None:
    assert list(Edit().prepare({"file_path": "a"}, harness.context).items()) == [
        ("replace_all", False),
        ("file_path", "a"),
    ]
    assert Edit().prepare({"file_path": "a", "replace_all": True}, harness.context)["replace_all"] is True


# Creating.


def test_an_empty_old_text_creates_a_file(harness: ToolHarness) -> None:
    result = edit(harness, "new.txt", "", "C\n")
    assert (harness.folder / "new.txt").read_bytes() == b"C\n"
    assert result.detail == {
        "filePath": harness.path("new.txt"),
        "oldString": "",
        "newString": "C\n",
        "originalFile": "",
        "structuredPatch": [{"oldStart": 1, "oldLines": 0, "newStart": 1, "newLines": 1, "lines": ["+C"]}],
        "userModified": False,
        "replaceAll": False,
    }


def test_an_empty_old_text_fills_an_empty_file_and_no_other(harness: ToolHarness) -> None:
    assert edited(harness, "", "", "text") == b"text"
    assert "old_string is empty but the file is not" in refusal(harness, "a.txt", "", "more")


# Refusals that help.


def test_equal_texts_are_refused(harness: ToolHarness) -> None:
    harness.put("a.txt", "B")
    assert refusal(harness, "a.txt", "B", "B").startswith("No changes to make")


def test_a_missing_file_is_refused(harness: ToolHarness) -> None:
    assert "does not exist" in refusal(harness, "none.txt", "a", "b")


def test_an_ambiguous_text_is_refused_with_the_count(harness: ToolHarness) -> None:
    harness.put("a.txt", "beta beta\nbeta")
    words = refusal(harness, "a.txt", "beta", "x")
    assert words.startswith("Found 3 matches of the string to replace, but replace_all is false.")


def test_matches_that_overlap_are_ambiguous(harness: ToolHarness) -> None:
    harness.put("a.txt", "x}\n}\n}")
    assert refusal(harness, "a.txt", "}\n}", "}").startswith("Found 2 matches")


@pytest.mark.parametrize(
    ("content", "old", "hint"),
    [
        ("def f():\n    return 1\n", "def f():\n\treturn 1", "differs only in white space is at line 1:\ndef f():"),
        ("one\ntwo \nthree", "two\nthree", "differs only in white space is at line 2:\ntwo \nthree"),
        ("a\nHello World\n", "hello world", "upper and lower case is at line 2:\nHello World"),
        ("x\nresult = compute(first, second)\n", "result = compute(first, last)", "The nearest line is 2:\nresult"),
        ("alpha\nbeta\n", "1\talpha\n2\tbeta", "line numbers as Read shows them"),
    ],
    ids=["indentation", "trailing space", "case", "nearest", "numbers"],
)
def test_a_text_that_is_not_there_is_refused_with_what_may_have_been_meant(
    harness: ToolHarness, content: str, old: str, hint: str
) -> None:
    harness.put("a.txt", content)
    words = refusal(harness, "a.txt", old, "new")
    assert words.startswith(f"String to replace not found in file.\nString: {old}\n")
    assert hint in words


def test_a_text_like_nothing_in_the_file_is_refused_without_a_guess(harness: ToolHarness) -> None:
    harness.put("a.txt", "alpha\n")
    assert refusal(harness, "a.txt", "nope", "x") == "String to replace not found in file.\nString: nope"


def test_a_binary_file_is_refused(harness: ToolHarness) -> None:
    harness.put("a.bin", b"abc\0def")
    assert "binary" in refusal(harness, "a.bin", "abc", "x")


# Line endings.


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\r\n", "\nb", "\nx\nb", "a\r\nx\r\nb\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "x\r\nb", "x\r\nb\r\n"),
        ("a\nb\n", "a\r\nb", "x\r\nb", "x\nb\n"),
        ("a\nb\n", "b", "x\r\ny", "a\nx\r\ny\n"),
        ("a\r\nb\nc\r\n", "a\nb\nc", "a\nb\nd", "a\r\nb\nd\r\n"),
        ("a\r\nb\nc\n", "b", "x\ny", "a\r\nx\ny\nc\n"),
        ("a\nb\r\nc", "c", "x\ny", "a\nb\r\nx\r\ny"),
        ("one\rtwo", "two", "x\ny", "one\rx\ny"),
    ],
    ids=[
        "crlf over lines", "crlf within a line", "crlf from the line feed on", "crlf given", "crlf given for lf",
        "crlf wanted in lf", "mixed lines keep theirs", "mixed takes the next", "mixed takes the last", "lone cr",
    ],
)  # fmt: skip
def test_line_endings_are_the_files_own(harness: ToolHarness, content: str, old: str, new: str, expected: str) -> None:
    assert edited(harness, content, old, new) == expected.encode()


def test_texts_that_differ_only_in_line_endings_change_nothing_and_say_so(harness: ToolHarness) -> None:
    harness.put("a.txt", "a\r\nb")
    assert "No changes to make" in refusal(harness, "a.txt", "a\r\nb", "a\nb")


# Quotes.


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        ("He said “hello”.", 'said "hello"', 'said "good bye"', "He said “good bye”."),
        ("it’s fine", "it's fine", "it's 'very' fine", "it’s ‘very’ fine"),
        ('x = "a"', "x = “a”", "x = “b”", 'x = "b"'),
        ("“a” and 'b'", "\"a\" and 'b'", "\"c\" and 'd'", "“c” and 'd'"),
        ("“a”\r\n“b”", '"a"\n"b"', '"a"\n"x"\n"c"', "“a”\r\n“x”\r\n“c”"),
    ],
    ids=["double", "single", "curly given", "each kind for itself", "with crlf"],
)
def test_quotes_match_their_kind_and_keep_the_files_spelling(
    harness: ToolHarness, content: str, old: str, new: str, expected: str
) -> None:
    assert edited(harness, content, old, new) == expected.encode()


def test_where_a_text_matches_exactly_quotes_go_in_as_they_are_given(harness: ToolHarness) -> None:
    assert edited(harness, "say 'a'\r\n", "say 'a'", "say ‘b’ “c”") == "say ‘b’ “c”\r\n".encode()


def test_quotes_that_match_twice_are_ambiguous(harness: ToolHarness) -> None:
    harness.put("a.txt", "“a” „b“ “a”")
    assert refusal(harness, "a.txt", '"a"', "x").startswith("Found 2 matches")


# Encodings.


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_written_back_as_utf_16(harness: ToolHarness, encoding: str) -> None:
    mark = "\ufeff".encode(encoding)
    after = edited(harness, mark + "größe 😀\r\nzwei\r\n".encode(encoding), "zwei", "drei\n€")
    assert after == mark + "größe 😀\r\ndrei\r\n€\r\n".encode(encoding)


def test_broken_utf_16_is_left_as_it_is(harness: ToolHarness) -> None:
    harness.put("a.txt", codecs.BOM_UTF16_LE + "abc".encode("utf-16-le") + b"\0\xd8x\0")
    assert "left unchanged" in refusal(harness, "a.txt", "abc", "x")


def test_a_byte_order_mark_stays(harness: ToolHarness) -> None:
    assert edited(harness, codecs.BOM_UTF8 + "é a".encode(), "é", "ü") == codecs.BOM_UTF8 + "ü a".encode()


def test_bytes_of_an_unknown_encoding_stay_as_they_are(harness: ToolHarness) -> None:
    assert edited(harness, b"caf\xe9 one\n\xfc\n", "one", "two") == b"caf\xe9 two\n\xfc\n"


@pytest.mark.parametrize(("old", "new"), [("one", "zwölf"), ("caf\ufffd", "tea")], ids=["new", "old"])
def test_an_unknown_encoding_takes_only_ascii(harness: ToolHarness, old: str, new: str) -> None:
    harness.put("a.txt", b"caf\xe9 one\n")
    words = refusal(harness, "a.txt", old, new)
    assert "not found" in words or "non-ASCII characters cannot be written" in words


def test_half_a_character_of_an_unknown_encoding_is_not_touched(harness: ToolHarness) -> None:
    # In Shift JIS the second byte of this character is a backslash.
    harness.put("a.txt", "表 a".encode("shift_jis"))
    assert "starts directly after a character" in refusal(harness, "a.txt", "\\", "/")


# What the model has seen.


def test_a_file_that_changed_since_it_was_read_is_edited_and_the_model_is_informed(harness: ToolHarness) -> None:
    path = harness.put("a.txt", "alpha\nbeta\n")
    harness.call(Read(), file_path=str(path))
    path.write_text("alpha\nbeta\nchanged\n")
    result = edit(harness, "a.txt", "alpha", "A1")
    assert path.read_text() == "A1\nbeta\nchanged\n"
    assert "(note: the file had been modified on disk since you last read it" in str(result.content)
    assert (result.detail["staleRecovered"], result.detail["contentNotInModelContext"]) == (True, True)


def test_our_own_changes_are_not_reported_as_changes_from_elsewhere(harness: ToolHarness) -> None:
    harness.call(Write(), file_path=harness.path("a.txt"), content="one two")
    edit(harness, "a.txt", "one", "1")
    assert "note:" not in str(edit(harness, "a.txt", "two", "2").content)


def test_a_model_that_must_read_first_cannot_edit_an_unread_file(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path, strict_reads=True)
    path = harness.put("a.txt", "alpha\n")
    assert refusal(harness, "a.txt", "alpha", "A").startswith("File has not been read yet.")
    harness.call(Read(), file_path=str(path))
    edit(harness, "a.txt", "alpha", "A")
    edit(harness, "a.txt", "A", "B")
    assert path.read_text() == "B\n"


# The whole.

PIECES = some.sampled_from(["a", "b", "ab", "é", "😀", "'", "’", '"', "”", " ", "\n", "\r\n", "\\", "("])
QUOTES = set("'’\"”")
TEXTS = some.lists(PIECES, max_size=12).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TEXTS, old=TEXTS, after=TEXTS, new=TEXTS)
def test_whatever_is_replaced_all_before_and_after_it_stays(
    harness: ToolHarness, before: str, old: str, after: str, new: str
) -> None:
    content = before + old + after
    places = sum(content.startswith(old, at) for at in range(len(content)))
    path = harness.put("a.txt", content)
    try:
        edit(harness, "a.txt", old, new)
    except ToolError:
        assert path.read_bytes() == content.encode()
        assert old == "" or old == new or places > 1 or "\r\n" in content + old or QUOTES & set(old)
        return
    found = path.read_bytes().decode()
    if "\r\n" in content + old:
        # What was put in may have other line endings than it was given.
        assert found.replace("\r\n", "\n") == (before + new + after).replace("\r\n", "\n")
    else:
        assert found == before + new + after
