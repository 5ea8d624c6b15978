"""Grep, on real files through the real ripgrep: what the model reads and the host sees."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from parley.tools.base import InvalidInput, ToolOutput, read_input, tool_schema
from parley.tools.search import Grep, GrepInput, split_globs
from parley.workspace.base import Scope
from parley.workspace.search.search import LocalSearch
from tests.helpers.remote_workspace import make_search
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    harness = ToolHarness(tmp_path)
    harness.change(open_search=lambda: make_search(harness.context.environment))
    files = {"a.txt": "alpha\nbeta\ngamma\nbeta\n", "sub/b.py": "import os\n# Beta\nclass B:\n    pass\n"}
    for age, (name, content) in enumerate(files.items(), 1):
        (harness.folder / name).parent.mkdir(exist_ok=True)
        os.utime(harness.put(name, content), (age, age))
    return harness


def text(harness: ToolHarness, pattern: str, **input: object) -> str:
    return str(harness.call(Grep(), pattern=pattern, **input).content)


def test_files_are_listed_by_default(harness: ToolHarness) -> None:
    assert harness.call(Grep(), pattern="beta") == ToolOutput(
        content="Found 1 file\na.txt",
        detail={"mode": "files_with_matches", "filenames": ["a.txt"], "numFiles": 1, "totalFiles": 1},
    )
    assert text(harness, "zzzz") == "No files found"
    assert text(harness, "a") == "Found 2 files\nsub/b.py\na.txt"


def test_content_shows_the_lines(harness: ToolHarness) -> None:
    lines = "a.txt:2:beta\na.txt:4:beta"

    assert harness.call(Grep(), pattern="beta", output_mode="content", **{"-n": True}) == ToolOutput(
        content=lines,
        detail={
            "mode": "content",
            "numFiles": 0,
            "filenames": [],
            "content": lines,
            "numLines": 2,
            "totalLines": 2,
        },
    )


def test_counts_are_per_file(harness: ToolHarness) -> None:
    assert harness.call(Grep(), pattern="beta", output_mode="count") == ToolOutput(
        content="a.txt:2\n\nFound 2 total occurrences across 1 file.",
        detail={"mode": "count", "numFiles": 1, "filenames": [], "content": "a.txt:2", "numMatches": 2},
    )


@pytest.mark.parametrize(
    ("input", "expected"),
    [
        ({"-A": 1}, "a.txt:1:alpha\na.txt-2-beta"),
        ({"-B": 1}, "a.txt:1:alpha"),
        ({"-C": 1}, "a.txt:1:alpha\na.txt-2-beta"),
        ({"context": 1}, "a.txt:1:alpha\na.txt-2-beta"),
        ({"-C": 2, "-A": 0}, "a.txt:1:alpha"),
        ({"-n": False}, "a.txt:alpha"),
        ({"-o": True, "pattern": "l.h"}, "a.txt:1:lph"),
        ({"-i": True, "pattern": "ALPHA"}, "a.txt:1:alpha"),
        ({"multiline": True, "pattern": "alpha.beta"}, "a.txt:1:alpha\na.txt:2:beta"),
        ({"path": "a.txt"}, "a.txt:1:alpha"),
        ({"path": "sub", "pattern": "class"}, "sub/b.py:3:class B:"),
        ({"glob": "*.py", "pattern": "s"}, "sub/b.py:1:import os\nsub/b.py:3:class B:\nsub/b.py:4:    pass"),
        ({"type": "py", "pattern": "B:"}, "sub/b.py:3:class B:"),
        ({"pattern": "nothing"}, "No matches found"),
        ({"pattern": "beta", "head_limit": 1}, "a.txt:2:beta\n\n(Showing 1-1 of 2. Continue with offset 1.)"),
        ({"pattern": "beta", "offset": 1}, "a.txt:4:beta"),
        ({"pattern": "beta", "head_limit": 0}, "a.txt:2:beta\na.txt:4:beta"),
    ],
    ids=str,
)
def test_every_input_does_what_it_says(harness: ToolHarness, input: dict[str, object], expected: str) -> None:
    assert text(harness, **{"pattern": "alpha", "output_mode": "content", **input}) == expected  # type: ignore[arg-type]  # a test


def test_between_files_with_lines_around_them_stands_a_mark(harness: ToolHarness) -> None:
    told = harness.call(Grep(), pattern="alpha|class", output_mode="content", **{"-A": 1})

    assert told.content == "a.txt:1:alpha\na.txt-2-beta\n--\nsub/b.py:3:class B:\nsub/b.py-4-    pass"
    assert told.detail["totalLines"] == 5


def test_long_lines_are_cut(harness: ToolHarness) -> None:
    harness.put("long.js", "x" * 10_000 + "needle\n")

    told = text(harness, "needle", output_mode="content")

    assert told == f"long.js:1:{'x' * 500} [... omitted end of long line]"


def test_ripgreps_own_words_tell_what_is_wrong(harness: ToolHarness) -> None:
    assert "unclosed group" in harness.refusal(Grep(), pattern="be(")
    assert "unrecognized file type: nope" in harness.refusal(Grep(), pattern="x", type="nope")


def test_a_pattern_is_never_an_option(harness: ToolHarness) -> None:
    harness.put("flags", "--files -e x\n")

    assert text(harness, "--files") == "Found 1 file\nflags"


def test_what_a_rule_denies_leaves_no_trace(harness: ToolHarness) -> None:
    harness.change(hides=lambda path: path == harness.path("a.txt"))

    assert text(harness, "a", output_mode="content", **{"-o": True}) == "sub/b.py:2:a\nsub/b.py:3:a\nsub/b.py:4:a"
    assert text(harness, "a") == "Found 1 file\nsub/b.py"
    assert "Found 3 total occurrences across 1 file" in text(harness, "a", output_mode="count")


def test_what_is_out_of_reach_is_refused(harness: ToolHarness, tmp_path: Path) -> None:
    harness.reach = Scope(folders=(harness.path("sub"),))

    assert "outside the paths that this call may access" in harness.refusal(Grep(), pattern="x")
    assert text(harness, "class", path="sub") == "Found 1 file\nsub/b.py"


def test_out_of_time_is_reported(harness: ToolHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.tools.search.TIMEOUT_SECONDS", 2.0)
    program = tmp_path / "bin" / "rg"
    program.parent.mkdir()
    harness.change(open_search=lambda: LocalSearch({"PATH": f"{program.parent}:/usr/bin:/bin"}))
    for words in ("", r"printf './a.txt\0'; "):
        program.write_text(f"#!/bin/sh\n{words}exec sleep 600\n")
        program.chmod(0o755)
        if not words:
            assert "stopped after 2 seconds" in harness.refusal(Grep(), pattern="x")

    told = harness.call(Grep(), pattern="x")

    assert str(told.content).startswith("Found more than 1 file\na.txt\n(The search was stopped after 2 seconds.")
    assert told.detail["timedOut"] is True


def test_the_schema_has_the_names_of_the_wire() -> None:
    assert list(tool_schema(Grep())["input_schema"]["properties"]) == [
        *("pattern", "path", "glob", "type", "output_mode", "-A", "-B", "-C", "context", "-n", "-i", "-o"),
        *("multiline", "head_limit", "offset"),
    ]


@pytest.mark.parametrize(
    "input", [{}, {"pattern": 1}, {"pattern": "x", "-A": -1}, {"pattern": "x", "output_mode": "y"}]
)
def test_input_that_does_not_fit_is_refused(input: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        read_input(Grep(), input)


def test_an_input_keeps_its_spelling_on_the_wire() -> None:
    assert msgspec.to_builtins(GrepInput(pattern="x", after=2))["-A"] == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", []),
        ("*.py", ["*.py"]),
        ("*.{ts,tsx}", ["*.{ts,tsx}"]),
        ("*.ts,*.tsx", ["*.ts", "*.tsx"]),
        ("*.ts, *.{a,b} !*.c", ["*.ts", "*.{a,b}", "!*.c"]),
        ("my notes*.md", ["my notes*.md"]),
        ("a,b.txt", ["a,b.txt"]),
    ],
)
def test_several_globs_may_be_given_at_once(given: str, expected: list[str]) -> None:
    assert split_globs(given) == expected
