"""What is mounted, filtered, protected and reported, as plain data."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from parley.workspace.sandbox import seccomp
from parley.workspace.sandbox.base import SandboxPolicy, choose_mounts, plan_mounts
from parley.workspace.sandbox.commands import find_violations
from parley.workspace.sandbox.protected import find_protected, outer_repository
from parley.workspace.sandbox.protected_entries import FolderIndex


@pytest.mark.parametrize("machine", seccomp.MACHINES)
@pytest.mark.parametrize("rules", [seccomp.FilterRules(), seccomp.FilterRules((), shares_host=True)])
def test_every_jump_of_the_filter_stays_in_it_and_every_path_returns(machine: str, rules: seccomp.FilterRules) -> None:
    program = seccomp.build_filter(rules, machine)

    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(code) < 4096  # the kernel's limit
    assert code[-1][0] == seccomp.RETURN
    for at, (operation, if_true, if_false, _) in enumerate(code):
        assert operation == seccomp.RETURN or at + 1 + max(if_true, if_false) < len(code)


def test_folders_above_a_protected_file_are_mount_points(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/frozen").write_text("")
    policy = SandboxPolicy(
        cwd=str(tmp_path), writable=(str(tmp_path),), read_only=(f"{tmp_path}/a/b/frozen", f"{tmp_path}/new/x")
    )

    kinds, placeholders = choose_mounts(policy, ())

    assert kinds == {
        str(tmp_path): "writable",
        f"{tmp_path}/a": "writable",
        f"{tmp_path}/a/b": "writable",
        f"{tmp_path}/a/b/frozen": "read_only",
        f"{tmp_path}/new": "empty",
    }
    assert placeholders == [f"{tmp_path}/new"]


def test_parents_are_mounted_before_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "hidden/shown").mkdir(parents=True)
    policy = SandboxPolicy(
        cwd=str(tmp_path),
        writable=(str(tmp_path),),
        unreadable=(f"{tmp_path}/hidden",),
        readable=(f"{tmp_path}/hidden/shown",),
    )
    words = plan_mounts(policy, temp=str(tmp_path), empty=str(tmp_path), runtime=()).arguments

    places = [words.index(path) for path in (str(tmp_path), f"{tmp_path}/hidden", f"{tmp_path}/hidden/shown")]
    assert places == sorted(places)


def test_protected_files_are_found_in_folders_below(tmp_path: Path) -> None:
    for name in ("sub/.git/hooks", ".claude/worktrees", "node_modules/x/.git", "a/b/c/d/.claude"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sub/.git/HEAD").write_text("")
    (tmp_path / "sub/.git/config").write_text("")
    (tmp_path / ".MCP.json").write_text("")

    found = find_protected(FolderIndex([str(tmp_path)]))

    inner = {Path(path).relative_to(tmp_path).as_posix() for path in found.read_only if Path(path).exists()}
    assert inner == {".MCP.json", ".claude", "sub/.git/config", "sub/.git/hooks", "a/b/c/d/.claude"}
    assert found.writable == (f"{tmp_path}/.claude/worktrees",)


def test_a_forged_reference_to_a_repository_is_not_believed(tmp_path: Path) -> None:
    work, victim = tmp_path / "work", tmp_path / "victim/.git"
    work.mkdir()
    victim.mkdir(parents=True)
    (work / ".git").write_text(f"gitdir: {victim}\n")
    assert outer_repository(str(work)) == []

    linked = victim / "worktrees/w"
    linked.mkdir(parents=True)
    (linked / "gitdir").write_text(f"{work}/.git\n")
    (linked / "commondir").write_text("../..\n")
    (work / ".git").write_text(f"gitdir: {linked}\n")
    assert outer_repository(str(work)) == [], "the folder is not a git directory"

    for name in ("objects", "refs"):
        (victim / name).mkdir()
    (victim / "HEAD").write_text("ref: refs/heads/main\n")
    assert outer_repository(str(work)) == [str(victim), str(linked)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/bin/bash: line 1: /etc/x: Read-only file system", "/etc/x: it is outside"),
        ("touch: cannot touch '/etc/a b': Read-only file system", "/etc/a b: it is outside"),
        ("cat: /secret/key: Permission denied", "/secret/key: reading it is not allowed"),
        ("cat: /project/private: Permission denied", "/project/private: reading it is not allowed"),
        (
            "OSError: [Errno 30] Read-only file system: '/project/frozen/x'",
            "/project/frozen/x: writing it is not allowed",
        ),
        ("mv: cannot move '.git' to 'x': Device or resource busy", "/project/.git: it is protected"),
        ("curl: (6) Could not resolve host: a.example", "the network"),
        ("cat: missing: No such file or directory", ""),
        ("cat: /project/mine: Permission denied", ""),
        ("everything is fine", ""),
    ],
)
def test_a_refusal_is_named_if_the_sandbox_is_the_reason(line: str, expected: str) -> None:
    policy = SandboxPolicy(
        cwd="/project",
        writable=("/project",),
        read_only=("/project/frozen",),
        protected=("/project/.git",),
        unreadable=("/secret", "/project/private"),
    )

    found = find_violations(policy, line, "bubblewrap")

    assert len(found) == (1 if expected else 0)
    assert all(text.startswith(expected) for text in found)
