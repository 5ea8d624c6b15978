"""Hundreds of allowed commands in a real bash; tests/stress/permissions/canary.py runs as many as you like."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from parley.permissions.shell.strict_parser import CommandLine, parse_strict
from tests.stress.permissions import canary, canary_links, canary_trees

pytestmark = pytest.mark.skipif(
    not shutil.which("bash") or not canary.isolation(), reason="no bash, or no way to cage it"
)


@pytest.fixture
def ground() -> Iterator[canary.Ground]:
    """Not in pytest's folder, which the shell without root rights cannot enter."""
    with tempfile.TemporaryDirectory(prefix="canary-") as root:
        yield canary.Ground(Path(root))


def test_no_allowed_command_runs_the_canary_writes_or_gets_other_words_than_were_judged() -> None:
    summary = canary.run(count=160, seed=1)

    assert summary.broken == []
    assert summary.allowed == {"contexts": 80, "everyday": 80}
    assert summary.programs > 80


def test_no_allowed_command_in_a_hostile_tree_leaks_runs_or_changes_anything() -> None:
    summary = canary_trees.run(count=250, seed=1)

    assert summary.broken == []
    assert summary.generated >= 240
    assert sum(summary.allowed.values()) > 10


WRONG = {
    "none": {
        "cat link.txt": "the output has SECRET-OUT",
        "ls -L linkdir": "the output has SECRETNAME",
        "cd && cat notes.txt": "the output has SECRET-HOME",
        "git log -p": "the output has SECRET-DENIED",
        "echo x > new.txt": "something changed in the working directory",
        "touch linkdir/new": "something changed outside the working directory",
    },
    "config": {"git status": "a program of the tree ran"},
    "driver": {"git diff": "a program of the tree ran"},
    "hooks": {"git status": "a program of the tree ran"},
    "include": {"git status": "a program of the tree ran"},
    "gitdir": {"git status": "a program of the tree ran"},
    "path": {"wc README.md": "a program of the tree ran", "find src -exec wc {} +": "a program of the tree ran"},
    "names": {
        "find src -type f | xargs cat": "the output has SECRET-OUT",
        "for f in src/*/*/*; do cat $f; done": "the output has SECRET-OUT",
    },
    "index": {
        "git ls-files | xargs cat": "the output has SECRET-OUT",
        "git diff HEAD~1": "the output has SECRET-OUT",
    },
}
"""For each tree, commands that must not be allowed, and what they do."""


@pytest.mark.parametrize("hostile", WRONG)
def test_the_hostile_trees_show_what_a_wrong_decision_would_do(hostile: str) -> None:
    with tempfile.TemporaryDirectory(prefix="trees-") as root:
        Path(root).chmod(0o755)
        place = Path(root) / "ground"
        place.mkdir()
        ground = canary_trees.Ground(place, hostile)

        for command, promise in WRONG[hostile].items():
            output = ground.run(command)

            assert promise in list(canary_trees.broken_promises(ground, "default", output)), command


@pytest.mark.parametrize("command", ["canary", "echo $(canary)", "ls\ncanary", "printf -v 'a[$(canary)]' 1"])
def test_the_harness_sees_a_canary_that_ran(ground: canary.Ground, command: str) -> None:
    ground.run(command)

    assert ground.mark.exists()


def test_the_harness_sees_a_file_that_was_written_and_words_that_no_one_judged(ground: canary.Ground) -> None:
    line = parse_strict("ls a")
    assert isinstance(line, CommandLine)

    ground.run("ls b; echo x > c; echo x > ../out/kept")

    assert list(canary.broken_promises(line, ground, canary.Summary())) == [
        "something was written",
        "a program got ('ls', 'b')",
    ]


@pytest.mark.parametrize("command", ["wc -l *.txt", "command wc -l *.txt", "timeout 5 nice wc -l ?.txt"])
def test_a_pattern_may_become_file_names_behind_wrappers_too(ground: canary.Ground, command: str) -> None:
    line = parse_strict(command)
    assert isinstance(line, CommandLine)
    assert canary.is_allowed(line)

    ground.run(command)

    assert [words[-3:] for words in ground.ran()][-1] == ("wc", "-l", "a.txt")
    assert list(canary.broken_promises(line, ground, canary.Summary())) == []


def test_the_seed_decides_every_command() -> None:
    for generator in canary.GENERATORS.values():
        first, second = generator(Random(3)), generator(Random(3))
        assert [next(first) for _ in range(200)] == [next(second) for _ in range(200)]


def test_no_reader_that_is_allowed_prints_what_is_outside() -> None:
    summary = canary_links.run(count=60, seed=1)

    assert summary.broken == []
    assert summary.allowed == 60
