"""Folders of a working tree that git takes for a repository: git would use their configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.permissions.base import Allow, Ask, Decision, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.filesystem import CachedFilesystem, RealFilesystem
from parley.permissions.git.repository import MARKS, record_repository
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from tests.helpers.file_tree import Tree

PLANTED = ["/w/.git", "/w/sub/HEAD", "/w/sub/objects", "/w/sub/refs", "/w/sub/config"]


def decided(
    command: str, *rules: Rule, cwd: str = "/w/sub", home: str = "/w", files: list[str] = PLANTED, mode: str = "default"
) -> Decision:
    request = ToolRequest(tool="Bash", input={"command": command}, cwd=cwd)
    view = CachedFilesystem(Tree(files=files))
    known = record_repository(home, view, lambda way: True, trusted=False)
    return decide(request, RuleSet(cwd=home, rules=rules, repository=known), mode, Tree(files=files))


def rule(text: str) -> Rule:
    found = parse_rule(text, "allow", "user", "/w")
    assert isinstance(found, Rule)
    return found


@pytest.mark.parametrize("command", ["git status", "ls | xargs git log", "/usr/bin/git diff", "timeout 5 git status"])
@pytest.mark.parametrize("cwd", ["/w/sub", "/w/sub/deep/er"])
def test_git_is_asked_about_where_a_repository_is_planted(command: str, cwd: str) -> None:
    assert isinstance(decided(command, cwd=cwd), Ask)


def test_a_rule_on_git_does_not_mean_a_planted_repository() -> None:
    assert isinstance(decided("git status", rule("Bash(git status:*)")), Ask)


def test_a_rule_on_git_means_the_bare_repository_that_a_session_is_started_in() -> None:
    decision = decided("git status", rule("Bash(git status:*)"), home="/w/sub", files=PLANTED[1:4])

    assert isinstance(decision, Allow)
    assert isinstance(decided("git status", home="/w/sub", files=PLANTED[1:4]), Ask)


def test_a_line_cannot_complete_a_repository_and_run_git_in_it() -> None:
    assert isinstance(decided("touch HEAD && git status", files=["/w/sub/objects", "/w/sub/refs"]), Ask)
    made = "mkdir objects refs && cp h HEAD && git status"
    assert isinstance(decided(made, files=[], mode="acceptEdits"), Ask)


def test_everything_else_is_as_it_was_there() -> None:
    assert isinstance(decided("ls -la"), Allow)
    assert isinstance(decided("git status", cwd="/w"), Allow)
    assert isinstance(decided("git status", files=["/w/.git"]), Allow)
    assert isinstance(decided("git status", files=[*PLANTED, "/w/sub/.git"]), Ask)


def test_a_git_folder_without_a_head_is_not_a_repository() -> None:
    assert isinstance(decided("git status", cwd="/w", files=["/w/.git", "/w/.git/config"]), Allow)
    whole = ["/w/.git", "/w/.git/config", *(f"/w/.git/{mark}" for mark in MARKS)]
    assert isinstance(decided("git status", cwd="/w", files=whole), Ask)


def test_the_files_of_the_disk_count(tmp_path: Path) -> None:
    sub = tmp_path / "sub"
    request = ToolRequest(tool="Bash", input={"command": "git status"}, cwd=str(sub))
    (tmp_path / ".git").mkdir()
    (sub / "objects").mkdir(parents=True)
    (sub / "refs").mkdir()
    before = decide(request, RuleSet(cwd=str(tmp_path)), "default", RealFilesystem(str(tmp_path)))
    (sub / "HEAD").write_text("ref: refs/heads/main\n")

    assert isinstance(before, Allow)
    assert isinstance(decide(request, RuleSet(cwd=str(tmp_path)), "default", RealFilesystem(str(tmp_path))), Ask)
