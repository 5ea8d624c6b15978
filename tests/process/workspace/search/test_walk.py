"""Going through real trees: what is found, what is left out, and against ripgrep's own listing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from parley.workspace.globs import PathGlob
from parley.workspace.search import walk as module
from parley.workspace.search.walk import ALL_FILES, Walk, WalkFilter, newest

RG = str(Path(sys.executable).parent / "rg")


@contextmanager
def walking(folder: Path, filter: WalkFilter = ALL_FILES, **options: Any) -> Iterator[Walk]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield Walk(descriptor, str(folder), filter, **options)
    finally:
        os.close(descriptor)


def found(folder: Path, **filter: Any) -> list[str]:
    with walking(folder, WalkFilter(**filter)) as walk:
        return sorted(file.path for file in walk.files())


def plant(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_all_files_are_found_but_those_of_version_control(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", "b/c": "", ".hidden/d": "", ".git/config": "", "b/.hg/x": "", ".env": ""})

    assert found(tmp_path) == [".env", ".hidden/d", "a", "b/c"]


def test_hidden_files_are_left_out_if_asked(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", ".hidden/d": "", ".env": ""})

    assert found(tmp_path, hidden=False) == ["a"]


def test_a_pattern_picks_files(tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "", "b/c.py": "", "b/c.txt": ""})

    assert found(tmp_path, glob=PathGlob.of("b/*.py")) == ["b/c.py"]


def test_git_rules_count_only_in_a_repository(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "*.log\n", "a.log": "", "b": ""})

    assert found(tmp_path) == [".gitignore", "a.log", "b"]
    (tmp_path / ".git").mkdir()
    assert found(tmp_path) == [".gitignore", "b"]
    assert found(tmp_path, ignored=True) == [".gitignore", "a.log", "b"]


def test_rules_further_down_are_stronger(tmp_path: Path) -> None:
    plant(tmp_path, {".git/x": "", ".gitignore": "*.log\n", "sub/.gitignore": "!keep.log\n/own\n"})
    plant(tmp_path, {"keep.log": "", "sub/keep.log": "", "sub/other.log": "", "sub/own": "", "sub/deep/own": ""})

    assert found(tmp_path) == [".gitignore", "sub/.gitignore", "sub/deep/own", "sub/keep.log"]


def test_rules_above_the_tree_count_up_to_the_repository(tmp_path: Path) -> None:
    plant(tmp_path, {".ignore": "*.tmp\n", ".gitignore": "*.c\n"})
    plant(tmp_path, {"repo/.git/info/exclude": "*.o\n", "repo/.gitignore": "/src/gen\n"})
    plant(tmp_path, {"repo/src/a.c": "", "repo/src/a.o": "", "repo/src/a.tmp": "", "repo/src/gen/b.c": ""})

    assert found(tmp_path / "repo" / "src") == ["a.c"]


def test_an_ignore_file_is_stronger_than_git_rules(tmp_path: Path) -> None:
    plant(tmp_path, {".git/x": "", ".gitignore": "data/\n", ".ignore": "!data/\nsecret\n", "data/a": "", "secret": ""})

    assert found(tmp_path) == [".gitignore", ".ignore", "data/a"]


def test_a_repository_within_one_has_its_own_rules(tmp_path: Path) -> None:
    plant(tmp_path, {".git/x": "", ".gitignore": "*.log\n", "inner/.git/x": "", "inner/a.log": "", "b.log": ""})

    assert found(tmp_path) == [".gitignore", "inner/a.log"]


def test_an_ignored_folder_that_is_the_start_is_gone_through(tmp_path: Path) -> None:
    plant(tmp_path, {".git/x": "", ".gitignore": "node_modules/\n", "node_modules/a/b.js": ""})

    assert found(tmp_path / "node_modules") == ["a/b.js"]


def test_a_linked_folder_is_never_entered(tmp_path: Path) -> None:
    plant(tmp_path, {"outside/secret": "", "tree/a": ""})
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")

    assert found(tmp_path / "tree") == ["a", "link"]


def test_a_folder_swapped_for_a_link_during_the_walk_is_not_entered(tmp_path: Path) -> None:
    plant(tmp_path, {"outside/secret": "", "tree/a": "", "tree/sub/b": ""})
    with walking(tmp_path / "tree") as walk:
        paths = []
        for file in walk.files():  # "a" comes first, before any folder is opened
            paths.append(file.path)
            if file.path == "a":
                os.rename(tmp_path / "tree" / "sub", tmp_path / "sub")
                (tmp_path / "tree" / "sub").symlink_to(tmp_path / "outside")

    assert paths == ["a"]
    assert not walk.complete


def test_an_ignore_file_that_is_a_link_or_a_pipe_has_no_say(tmp_path: Path) -> None:
    plant(tmp_path, {"rules": "a\n", "tree/a": "", "tree/sub/b": ""})
    (tmp_path / "tree" / ".ignore").symlink_to(tmp_path / "rules")
    os.mkfifo(tmp_path / "tree" / "sub" / ".ignore")

    assert found(tmp_path / "tree") == [".ignore", "a", "sub/.ignore", "sub/b"]


def test_a_walk_that_is_stopped_says_so(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", "b/c": ""})
    answers = iter([False, True])
    with walking(tmp_path, stop=lambda: next(answers)) as walk:
        assert [file.path for file in walk.files()] == ["a"]

    assert (walk.stopped, walk.complete) == (True, False)


def test_folders_too_deep_to_hold_open_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEEPEST", 3)
    plant(tmp_path, {"1/2/a": "", "1/2/3/b": ""})
    with walking(tmp_path) as walk:
        assert [file.path for file in walk.files()] == ["1/2/a"]

    assert (walk.stopped, walk.complete) == (False, False)


def test_no_descriptor_stays_open_when_a_walk_is_left_early(tmp_path: Path) -> None:
    plant(tmp_path, {"1/2/3/a": "", "1/2/3/b": ""})
    with walking(tmp_path) as walk:
        before = len(os.listdir("/proc/self/fd"))
        files = walk.files()
        next(files)
        files.close()  # type: ignore[attr-defined]  # it is a generator

        assert len(os.listdir("/proc/self/fd")) == before


def test_names_that_are_not_text_are_found(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py"))).touch()

    assert found(tmp_path, glob=PathGlob.of("*.py")) == ["\udcff.py"]


def test_the_newest_come_first_and_all_are_counted(tmp_path: Path) -> None:
    plant(tmp_path, {"old": "", "new": "", "sub/newest": "", "same": ""})
    for name, age in {"old": 1, "new": 3, "same": 3, "sub/newest": 4}.items():
        os.utime(tmp_path / name, (age, age))
    with walking(tmp_path) as walk:
        assert newest(walk, 3, lambda path, is_link: True) == (["sub/newest", "new", "same"], 4)


def test_only_files_and_links_are_offered_and_only_wanted_ones_count(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", "b": ""})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("a")
    asked: list[tuple[str, bool]] = []

    def wanted(path: str, is_link: bool) -> bool:
        asked.append((path, is_link))
        return path != "b"

    with walking(tmp_path) as walk:
        assert newest(walk, 10, wanted)[1] == 2
    assert sorted(asked) == [("a", False), ("b", False), ("link", True)]


RULES = ("*.log", "!a.log", "/b", "d/", "d/*", "!d/keep", "**/e", "d/**/c", "e/f", "*", "!*/", "!c", "[ab]", "?.log")
NAMES = ("a", "a.log", "b", "c", "keep", "d/a", "d/keep", "d/c", "d/e/f", "d/e/c", "e/f", "e/c", "d/d/b")
rule_files = some.dictionaries(
    some.sampled_from([".gitignore", ".ignore", "d/.gitignore", "d/.ignore", "d/e/.gitignore", ".git/info/exclude"]),
    some.lists(some.sampled_from(RULES), min_size=1, max_size=4),
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(rule_files)
def test_files_are_found_as_ripgrep_lists_them(rules: dict[str, list[str]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        plant(folder, {".git/info/exclude": ""} | dict.fromkeys(NAMES, ""))
        plant(folder, {name: "\n".join(lines) + "\n" for name, lines in rules.items()})

        asked = [RG, "--no-config", "--no-ignore-global", "--files", "--hidden", "--glob=!.git", "./"]
        told = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False).stdout.splitlines()

        assert found(folder) == sorted(line.removeprefix("./") for line in told)
