"""Programs are trusted for the file that their name runs, not for the name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from parley.permissions.base import Allow, Ask, Decision, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.workspace.search_path import DEFAULT, folders, with_absolute_path
from tests.helpers.file_tree import Tree
from tests.stress.permissions import canary, path_canary

SYSTEM = "/usr/bin:/bin"
CALL = 'name = "Bash", id = "call_1", input = { command = """%s""" }'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A working tree with a folder of programs in it."""
    work = tmp_path / "work"
    (work / ".venv" / "bin").mkdir(parents=True)
    (work / "a.txt").write_text("a\n")
    return work


def plant(work: Path, name: str, folder: str = ".venv/bin") -> Path:
    """A program that leaves a mark and then behaves like a reader."""
    place = work / folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n: > '{work.parent}/canary'\n")
    place.chmod(0o755)
    return place


def allowing(*texts: str) -> tuple[Rule, ...]:
    read = [parse_rule(text, "allow", "user", "/w") for text in texts]
    return tuple(rule for rule in read if isinstance(rule, Rule))


def decided(command: str, work: Path, path: str, *allow: str, mode: str = "default", tool: str = "Bash") -> Decision:
    input = {"command": command} if tool == "Bash" else {"file_path": command}
    request = ToolRequest(tool=tool, input=input, cwd=str(work), search_path=path)
    return decide(request, RuleSet(cwd=str(work), rules=allowing(*allow)), mode, RealFilesystem(str(work.parent)))


def reason(decision: Decision) -> str:
    assert isinstance(decision, Ask), decision
    return decision.reason


# The executable.


def played(
    work: Path, commands: Iterable[str], mode: str, path: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Bash calls one after the other, in a session without anyone to approve them."""
    script = work.parent / "script.toml"
    turns = [f"[[turn]]\ntools = [{{ {CALL % command} }}]\n" for command in commands]
    script.write_text("".join([*turns, "[[turn]]\ntext = 'Done.'\n"]))
    words = ("-m", "parley", "--print", "go", "--verbose", "--output-format", "stream-json", *options)
    return subprocess.run(
        [sys.executable, *words, "--model", f"scripted:{script}", "--permission-mode", mode],
        cwd=work,
        env={
            "HOME": str(work.parent),
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry.endswith("src")),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


READERS = {
    "wc": "wc -l a.txt", "pip": "pip --version", "cat": "head -1 a.txt | cat", "timeout": "timeout 5 ls",
    "git": "git status", "echo": "nice echo x", "grep": "egrep x a.txt",
}  # fmt: skip
"""Programs that are planted, and commands that run them."""


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "plan", "dontAsk"])
def test_a_program_of_the_tree_does_not_run_under_the_name_of_a_reader(tree: Path, mode: str) -> None:
    for name in READERS:
        plant(tree, name)

    ended = played(tree, READERS.values(), mode, f"{tree}/.venv/bin:{SYSTEM}")

    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    assert [denial["tool_input"]["command"] for denial in result["permission_denials"]] == list(READERS.values())
    assert not (tree.parent / "canary").exists()


def test_a_program_of_the_tree_does_not_run_under_the_name_of_an_editor(tree: Path) -> None:
    names = ("touch", "cp", "mkdir")
    for name in names:
        plant(tree, name)

    played(tree, [f"{name} a.txt b" for name in names], "acceptEdits", f"{tree}/.venv/bin:{SYSTEM}")

    assert not (tree.parent / "canary").exists()


@pytest.mark.parametrize(
    "path", [".:/usr/bin:/bin", ":/usr/bin:/bin", "./bin:bin:/usr/bin:/bin", "/proc/self/cwd:/usr/bin:/bin"]
)
def test_relative_entries_are_not_in_the_path_of_commands(tree: Path, path: str) -> None:
    plant(tree, "wc", ".")
    plant(tree, "wc", "bin")

    commands = ("wc -l a.txt", "printenv PATH")
    ended = played(tree, commands, "default", path, "--allowedTools", "Bash(printenv:*)")

    assert '"content":"1 a.txt' in ended.stdout
    assert '"content":"/usr/bin:/bin"' in ended.stdout
    assert not (tree.parent / "canary").exists()


# A real shell.

caged = pytest.mark.skipif(not canary.isolation(), reason="no way to cage a shell")


@caged
def test_no_line_that_is_allowed_runs_a_program_of_the_tree() -> None:
    told, broken = path_canary.run(count=150, seed=3)

    assert broken == []
    assert told["made"] > told["allowed"] >= 150


@caged
def test_the_harness_sees_a_program_of_the_tree_that_ran(tmp_path: Path) -> None:
    session = path_canary.Session(tmp_path, Random(1))
    assert not session.mark.exists()

    session.run("tools/evil", ["/bin/bash", "-c"])

    assert session.mark.exists()


# The decision.


def test_the_question_says_which_file_it_is(tree: Path) -> None:
    place = plant(tree, "wc")

    assert str(place) in reason(decided("wc -l a.txt", tree, f"{tree}/.venv/bin:{SYSTEM}"))


def test_the_question_is_about_the_first_program_of_the_line(tree: Path) -> None:
    names = ("cat", "head", "sort", "tail", "wc")
    for name in names:
        plant(tree, name)
    for first in names:
        rest = " && ".join(f"{name} a.txt" for name in names if name != first)
        asked = reason(decided(f"{first} a.txt && {rest}", tree, f"{tree}/.venv/bin:{SYSTEM}"))
        assert asked.startswith(f"{first} would run")


def test_a_reader_of_the_system_is_one_with_a_folder_of_the_tree_on_path(tree: Path) -> None:
    plant(tree, "pip")

    for command in ("wc -l a.txt", "ls", "git log -3", "echo x", "cd . && pwd", "timeout 5 cat a.txt", "rg x", "tree"):
        assert isinstance(decided(command, tree, f"{tree}/.venv/bin:{SYSTEM}"), Allow), command
    assert isinstance(decided("touch b", tree, f"{tree}/.venv/bin:{SYSTEM}", mode="acceptEdits"), Allow)


def test_the_first_folder_that_has_the_program_counts(tree: Path) -> None:
    plant(tree, "wc")

    assert isinstance(decided("wc a.txt", tree, f"{SYSTEM}:{tree}/.venv/bin"), Allow)


def test_builtins_need_no_file(tree: Path) -> None:
    for name in ("echo", "pwd", "true", "test", "printf", "cd"):
        plant(tree, name)

    for command in ("echo x", "pwd", "true", "test -f a.txt", "printf x", "cd ."):
        assert isinstance(decided(command, tree, f"{tree}/.venv/bin:{SYSTEM}"), Allow), command


def test_links_are_followed_both_ways(tree: Path) -> None:
    plant(tree, "wc", "tools")
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / "wc").symlink_to(tree / "tools" / "wc")
    (tree.parent / "alias").symlink_to(tree / "tools")
    (tree / "inner").symlink_to(outside)

    for folder in (outside, tree.parent / "alias", tree / "inner"):
        assert isinstance(decided("wc a.txt", tree, f"{folder}:{SYSTEM}"), Ask), folder


@pytest.mark.parametrize("size", [0, 2_000_000])
def test_a_script_that_looks_its_interpreter_up_runs_what_path_says(tree: Path, size: int) -> None:
    shims = tree.parent / "shims"
    shims.mkdir()
    (shims / "python").write_text("#!/usr/bin/env bash\nexit\n" + "#" * size)
    path = f"{tree}/.venv/bin:{shims}:{SYSTEM}"

    assert isinstance(decided("python --version", tree, path), Allow)
    plant(tree, "bash")
    assert isinstance(decided("python --version", tree, path), Ask)


def test_a_path_that_the_line_sets_itself_is_searched_too(tree: Path) -> None:
    plant(tree, "wc")
    rule = f"Bash(export PATH={tree}/.venv/bin)"

    assert isinstance(decided("export PATH=.venv/bin && wc a.txt", tree, SYSTEM, "Bash(export PATH=.venv/bin)"), Ask)
    assert isinstance(decided(f"export PATH={tree}/.venv/bin && wc a.txt", tree, SYSTEM, rule), Ask)
    assert isinstance(decided(f"export PATH={tree}/.venv/bin && cut -c1 a.txt", tree, SYSTEM, rule), Allow)


def test_a_rule_for_the_name_still_allows_it(tree: Path) -> None:
    plant(tree, "wc")
    path = f"{tree}/.venv/bin:{SYSTEM}"

    assert isinstance(decided("wc -l a.txt", tree, path, "Bash(wc:*)"), Allow)
    assert isinstance(decided("npm test | wc -l", tree, path, "Bash(npm test:*)"), Ask)


def test_a_wrapper_of_the_tree_is_not_looked_through(tree: Path) -> None:
    plant(tree, "timeout")
    path = f"{tree}/.venv/bin:{SYSTEM}"

    assert isinstance(decided("timeout 5 npm test", tree, path, "Bash(npm test:*)"), Ask)
    assert isinstance(decided("npm test", tree, path, "Bash(npm test:*)"), Allow)


@pytest.mark.parametrize(
    "command",
    ["cp a.txt .venv/bin/wc", "cp a.txt .venv/bin/wc; wc a.txt", "mv a.txt .venv/bin/ls", "echo x > .venv/bin/cat",
     "cp bin/wc .venv/bin", "cp -r evil .venv", "rm -r .venv; mv evil .venv", "mv evil .venv/bin",
     "touch .venv/bin/git"],
)  # fmt: skip
def test_nothing_is_put_in_front_of_a_known_program_unasked(tree: Path, command: str) -> None:
    decision = decided(command, tree, f"{tree}/.venv/bin:{SYSTEM}", "Bash(cp:*)", "Bash(mv:*)", mode="acceptEdits")

    assert "PATH" in reason(decision)


def test_other_files_of_a_folder_on_path_are_files_like_all(tree: Path) -> None:
    path = f"{tree}/.venv/bin:{tree}/scripts:{SYSTEM}"

    for command in (
        "cp a.txt .venv/bin/deploy",
        "touch scripts/release",
        "cp a.txt wc",
        "mkdir -p scripts/lib",
        "rm -r .venv",
    ):
        assert isinstance(decided(command, tree, path, mode="acceptEdits"), Allow), command


def test_the_file_tools_ask_as_well(tree: Path) -> None:
    path = f"{tree}/.venv/bin:{SYSTEM}"

    assert "PATH" in reason(decided(".venv/bin/wc", tree, path, "Write", mode="acceptEdits", tool="Write"))
    assert isinstance(decided(".venv/bin/deploy", tree, path, mode="acceptEdits", tool="Write"), Allow)


def test_a_session_in_the_root_folder_has_the_programs_of_the_system() -> None:
    request = ToolRequest(tool="Bash", input={"command": "ls"}, cwd="/", search_path=DEFAULT)

    assert isinstance(decide(request, RuleSet(cwd="/"), "default", RealFilesystem("/home/me")), Allow)


def test_without_a_path_programs_are_what_their_names_say() -> None:
    request = ToolRequest(tool="Bash", input={"command": "ls"}, cwd="/w")

    assert isinstance(decide(request, RuleSet(cwd="/w"), "default", Tree(files=["/usr/bin/ls"])), Allow)


def test_only_absolute_folders_are_kept() -> None:
    assert folders("/a:b:./c::/d:~/e:/proc/self/cwd") == ("/a", "/d")
    assert folders("") == folders(".") == tuple(DEFAULT.split(":"))
    assert with_absolute_path({"A": "1", "PATH": ".:/bin"}) == {"A": "1", "PATH": "/bin"}


def test_a_git_lfs_of_the_tree_is_not_the_one_of_the_system(tree: Path) -> None:
    path = f"{tree}/.venv/bin:{SYSTEM}"
    assert isinstance(decided("git status", tree, path), Allow)

    assert "PATH" in reason(decided(".venv/bin/git-lfs", tree, path, "Write", mode="acceptEdits", tool="Write"))
    plant(tree, "git-lfs")
    assert isinstance(decided("git status", tree, path), Ask)
