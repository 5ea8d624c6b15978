"""`--worktree` through the real executable: the session works in a git worktree under the rules of the checkout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

STREAM = ("-p", "--model", "offline", "--output-format", "stream-json", "--verbose")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folder that `run` starts in, as a repository with one commit and settings that are not part of it."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("home/\n.claude/\n")
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "key.txt").write_text("key\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.local.json").write_text(json.dumps({"permissions": {"deny": ["Read(/key.txt)"]}}))
    return tmp_path


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def folders(checkout: Path) -> list[str]:
    return sorted(path.name for path in (checkout / ".claude" / "worktrees").glob("[!.]*"))


def play(run: Any, *argv: str) -> list[Any]:
    done = run(*STREAM, *argv)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def contents(lines: list[Any]) -> list[str]:
    blocks = [block for line in lines if line["type"] == "user" for block in line["message"]["content"]]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def call(name: str, **input: str) -> str:
    return f"call {name} {json.dumps(input)}"


def test_the_session_works_in_the_worktree_which_stays(checkout: Path, run: Any) -> None:
    steps = "\n".join([call("Bash", command="pwd"), call("Write", file_path="new.txt", content="x")])
    allowed = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash(pwd)")
    init, *rest = play(run, "--worktree", "feature/one", *allowed, "--", steps)

    place = checkout / ".claude" / "worktrees" / "feature+one"
    assert init["cwd"] == str(place)
    assert contents(rest)[0] == str(place)
    assert (place / "new.txt").read_text() == "x"
    assert git(place, "branch", "--show-current") == "worktree-feature+one"
    [transcript] = (checkout / "home" / ".claude" / "projects").glob("*-feature-one/*.jsonl")
    assert '"gitBranch":"worktree-feature+one"' in transcript.read_text()
    assert git(checkout, "status", "--porcelain") == ""
    assert folders(checkout) == ["feature+one"]

    again = play(run, "-w", "feature/one", "--", call("Read", file_path="new.txt"))
    assert "x" in contents(again)[0]
    assert folders(checkout) == ["feature+one"]


def test_rules_of_the_checkout_hold_in_the_worktree(checkout: Path, run: Any) -> None:
    outside = checkout / "a.txt"
    steps = [call("Read", file_path="key.txt"), call("Grep", pattern="key"), call("Read", file_path="a.txt")]
    steps.append(call("Write", file_path=str(outside), content="changed"))
    lines = play(
        run, "-w", "one", "--permission-mode", "acceptEdits", "--allowedTools", "Write", "--", "\n".join(steps)
    )

    denied, searched, read, written = contents(lines)
    assert "the rule Read(/key.txt) (local) forbids it" in denied
    assert "key.txt" not in searched
    assert "a" in read
    assert "not given" in written
    assert outside.read_text() == "a\n"


def test_options_name_files_of_the_checkout(checkout: Path, run: Any) -> None:
    (checkout / ".claude" / "style.json").write_text(json.dumps({"outputStyle": "Explanatory"}))
    (checkout / ".claude" / "script.toml").write_text('[[turn]]\ntext = "Scripted."\n')
    named = ("--settings", ".claude/style.json", "--model", "scripted:.claude/script.toml")
    init, *_, result = play(run, "-w", "one", *named, "--", "Hello")

    assert (init["output_style"], result["result"]) == ("Explanatory", "Scripted.")


def test_without_a_name_one_is_made_up(checkout: Path, run: Any) -> None:
    init, *_ = play(run, "-w", "--", "say Hi.")

    [name] = folders(checkout)
    assert name.startswith("session-")
    assert init["cwd"] == str(checkout / ".claude" / "worktrees" / name)


@pytest.mark.parametrize("name", ["../out", "a//b", "a b", "#12", "x" * 65, "."])
def test_a_name_that_is_not_a_path_below_the_folder_is_refused(checkout: Path, run: Any, name: str) -> None:
    done = run(*STREAM, "-w", name, "--", "say Hi.")

    assert done.returncode == 1
    assert done.stderr.startswith("Error: --worktree: ")
    assert folders(checkout) == []


def test_a_session_that_does_not_start_leaves_no_worktree(checkout: Path, run: Any) -> None:
    done = run(*STREAM, "-w", "one", "--resume", "99999999-9999-4999-8999-999999999999", "--", "say Hi.")

    assert "No conversation found" in done.stderr
    assert folders(checkout) == []
    assert git(checkout, "branch", "--format=%(refname:short)") == "main"


def test_a_folder_that_is_no_worktree_is_not_entered(checkout: Path, run: Any) -> None:
    (checkout / ".claude" / "worktrees" / "one").mkdir(parents=True)
    done = run(*STREAM, "-w", "one", "--", "say Hi.")

    assert done.returncode == 1
    assert "worktrees/one exists, but is not a worktree of the git repository in " in done.stderr


def test_a_hook_for_worktrees_is_not_passed_over(checkout: Path, run: Any) -> None:
    hooks = {"WorktreeCreate": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}
    done = run(*STREAM, "-w", "one", "--settings", json.dumps({"hooks": hooks}), "--", "say Hi.")

    assert done.stderr.startswith("Error: --worktree cannot be used: ")
    assert "has a WorktreeCreate hook, which runs only for agents" in done.stderr
    assert folders(checkout) == []


def test_it_needs_a_repository_and_may_run_git(run: Any) -> None:
    outside = run(*STREAM, "-w", "one", "--", "say Hi.")
    restricted = run(*STREAM, "-w", "one", "--restricted", "--", "say Hi.")

    assert "is not in a git repository" in outside.stderr
    assert restricted.stderr == "Error: --worktree cannot be used in a restricted session, which runs no commands\n"
