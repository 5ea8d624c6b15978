"""What stands in for ripgrep gives the answers ripgrep gives."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from parley.errors import ToolError
from parley.workspace.base import ContentQuery, Scope, SearchMatches
from parley.workspace.safe_open import Pins
from parley.workspace.search import ripgrep
from parley.workspace.search.search import open_root


def searched(path: Path, query: ContentQuery, *, by_ripgrep: bool, timeout_seconds: float = 15) -> SearchMatches:
    async def bounded() -> SearchMatches:
        with open_root(str(path), Scope(anywhere=True), Pins()) as root:
            return await ripgrep.search(
                query, root, ripgrep.Conditions(environment={}), timeout_seconds=timeout_seconds
            )

    def none(environment: dict[str, str]) -> Iterator[str]:
        return iter(())

    with pytest.MonkeyPatch.context() as patch:
        if not by_ripgrep:
            patch.setattr(ripgrep, "programs", none)
        return asyncio.run(bounded())


def plant(folder: Path) -> None:
    files = {
        ".git/config": b"beta\n",
        ".gitignore": b"ignored/\n",
        "ignored/x.py": b"beta\n",
        "a.txt": b"alpha\nbeta\n\ngamma beta beta\n\n\n\nlast beta",
        "sub/b.py": b"BETA\n    betas = 1\n# end\n",
        "sub/c.tsx": "béta ältest\n".encode(),
        "sub/crlf.txt": b"one\r\nbeta\r\n",
        "long.txt": b"x" * 600 + b"beta\n",
        "bin.dat": b"beta\0beta\n",
        "utf16.txt": "beta\n".encode("utf-16"),
        "broken.txt": b"beta \xff\xfe\n",
        "empty": b"",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    "query",
    [
        ContentQuery(pattern="beta"),
        ContentQuery(pattern="beta", mode="count"),
        ContentQuery(pattern="beta", mode="content"),
        ContentQuery(pattern="beta", mode="content", before=1, after=1),
        ContentQuery(pattern="beta", mode="content", after=3),
        ContentQuery(pattern="beta", mode="content", only_matching=True),
        ContentQuery(pattern="BeTa", mode="content", ignore_case=True),
        ContentQuery(pattern=r"^\s*beta", mode="content"),
        ContentQuery(pattern=r"alpha\s+beta"),
        ContentQuery(pattern=r"alpha\s+beta", multiline=True),
        ContentQuery(pattern=r"alpha.beta", mode="content", multiline=True),
        ContentQuery(pattern=r"beta.*?beta", mode="count", multiline=True),
        ContentQuery(pattern="b[éx]ta", mode="content"),
        ContentQuery(pattern="nothing like it", mode="content"),
        ContentQuery(pattern="beta", globs=("*.py",)),
        ContentQuery(pattern="b.ta", globs=("*.{py,tsx}",)),
        ContentQuery(pattern="beta", globs=("sub/*",)),
        ContentQuery(pattern="beta", globs=("!*.txt",)),
        ContentQuery(pattern="beta", type="py"),
        ContentQuery(pattern="(?<=gamma )beta", mode="content"),
    ],
    ids=str,
)
def test_it_answers_as_ripgrep_does(tmp_path: Path, query: ContentQuery) -> None:
    plant(tmp_path)

    theirs = searched(tmp_path, query, by_ripgrep=True)
    ours = searched(tmp_path, query, by_ripgrep=False)

    assert ours.files == theirs.files
    assert (ours.slow, theirs.slow) == (True, False)


def test_a_file_alone_is_searched_too(tmp_path: Path) -> None:
    plant(tmp_path)

    assert searched(
        tmp_path / "sub" / "b.py", ContentQuery(pattern="betas", mode="content"), by_ripgrep=False
    ).files == [("", [b"2:    betas = 1"])]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (ContentQuery(pattern="be("), "regex parse error: missing ), unterminated subpattern"),
        (ContentQuery(pattern="x", type="nope"), "unrecognized file type: nope"),
        (ContentQuery(pattern="x", globs=("{a,b}" * 20,)), "expand to more than"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(tmp_path: Path, query: ContentQuery, words: str) -> None:
    with pytest.raises(ToolError) as caught:
        searched(tmp_path, query, by_ripgrep=False)

    assert words in str(caught.value)


def test_a_pattern_that_would_take_years_is_ended(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 60 + "!\n")

    found = searched(tmp_path, ContentQuery(pattern="(a+)+$"), by_ripgrep=False, timeout_seconds=1)

    assert found == SearchMatches(files=[], complete=False, timed_out=True, slow=True)


LINES = some.lists(some.sampled_from([b"a", b"b", b"ab", b"", b"bb a"]), min_size=1, max_size=12)
PATTERNS = some.sampled_from(["a", "b", "^a$", "b+", "a|b", "^$"])


@settings(max_examples=15, deadline=None)
@given(LINES, PATTERNS, some.integers(0, 2), some.integers(0, 2), some.booleans())
def test_lines_around_matches_are_reported_alike(
    lines: list[bytes], pattern: str, before: int, after: int, only: bool
) -> None:
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "a").write_bytes(b"\n".join(lines) + b"\n")
        query = ContentQuery(pattern=pattern, mode="content", before=before, after=after, only_matching=only)

        assert searched(Path(made), query, by_ripgrep=False).files == searched(Path(made), query, by_ripgrep=True).files
