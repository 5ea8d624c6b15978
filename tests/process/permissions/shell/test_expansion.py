"""The expansion of globs contains at least what bash finds."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from parley.permissions.filesystem import MAX_ENTRIES, RealFilesystem
from parley.permissions.shell.file_names import Expansion, GlobLookup, expand
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand, parse_strict

NAMES = (
    "a", "b", "ab", "aB", "a.b", "a b", "-", "-a", "]", "[", "[a]", "a]", "!", "^", "*", "?", "\\", "0", "10", "z",
    ".hidden", "..x", "é", "éa", "aé", "$?", "d/a", "d/b", "d/.h", "d/[", "e/a", "e/d/a", "A", "Z", "_", "a-b", "x'y",
)  # fmt: skip
PIECES = (
    "*", "?", "[", "]", "a", "b", "d", "e", "/", ".", "-", "!", "^", "[a-c]", "[!a]", "[^b]", "[[:alpha:]]", "[]a]",
    "'['", '"]"', "\\*", "\\[", "'*'", "\"?\"", "[a'-'c]", "[-a]", "[a", "'a b'", "\\\\", "[.]", "[0-9]", "[A-b]", "..",
)  # fmt: skip


def made(root: Path) -> None:
    for name in NAMES:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (root / "out").symlink_to("d")
    (root / "gone").symlink_to("nowhere")


def look() -> GlobLookup:
    view = RealFilesystem("/")
    return GlobLookup(lambda path: view.entries(path, MAX_ENTRIES), view.exists)


def patterns(random: Random) -> Iterator[SimpleCommand]:
    while True:
        word = "".join(random.choice(PIECES) for _ in range(random.randint(1, 5)))
        line = parse_strict(f"echo {word}")
        if isinstance(line, CommandLine) and len(line.commands) == 1 and line.commands[0].globs == (1,):
            yield line.commands[0]


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_all_that_bash_finds_is_found(tmp_path: Path, locale: str) -> None:
    made(tmp_path)
    chosen = list(islice(patterns(Random(locale)), 400))
    script = "\n".join(f"printf '%s\\0' {command.words[1]}; printf '\\1\\0'" for command in chosen)
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", script],
        cwd=tmp_path,
        env={"PATH": os.defpath, "LC_ALL": locale},
        capture_output=True,
        check=True,
    )
    found = [group.split("\0")[:-1] for group in os.fsdecode(done.stdout).split("\1\0")[:-1]]

    for command, names in zip(chosen, found, strict=True):
        expanded = expand(command.words[1], str(tmp_path), look())
        assert isinstance(expanded, Expansion)
        there = {os.path.normpath(name) for name in names if os.path.lexists(tmp_path / name)}
        assert there <= set(map(os.path.normpath, expanded.words)), command.text


def test_the_listed_folders_are_reported(tmp_path: Path) -> None:
    made(tmp_path)

    found = expand("*/a", str(tmp_path), look())

    assert found is not None
    assert sorted(found.words) == ["d/a", "e/a", "out/a"]
    assert {Path(folder).name for folder in found.folders} == {tmp_path.name, "d", "e", "out"}


def test_a_path_that_is_not_a_link_is_reported(tmp_path: Path) -> None:
    made(tmp_path)

    found = expand("d*", str(tmp_path), look())
    links = expand("g*", str(tmp_path), look())

    assert found is not None
    assert links is not None
    assert (found.words, sorted(links.words)) == (("d",), ["gone"])
    assert links.non_links == ()
    assert found.non_links == (f"{tmp_path}/d",)


def test_a_pattern_without_a_file_stands_for_itself(tmp_path: Path) -> None:
    assert expand("no*such", str(tmp_path), look()) == Expansion(("no*such",), (f"{tmp_path}/",), ())


@pytest.mark.parametrize("word", ["*" * 2_000, "a*\"$(cat <<'E'\nx\nE\n)\""])
def test_what_cannot_be_looked_at_is_not_guessed(tmp_path: Path, word: str) -> None:
    assert expand(word, str(tmp_path), look()) is None


def test_a_folder_with_too_many_names_is_not_guessed() -> None:
    assert expand("*", "/w", GlobLookup(lambda path: None, lambda path: True)) is None
