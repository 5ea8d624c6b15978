"""What an agent may do in its own worktree, in the user's checkout, and in the worktrees of other agents."""

from __future__ import annotations

from typing import Any

import pytest

from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet, WorktreeRules
from parley.workspace.base import Worktree
from parley.workspace.sensitive_names import holds_keys, is_protected
from tests.helpers.file_tree import Tree


@pytest.mark.parametrize(
    "path",
    [
        "/w/.git/hooks/pre-commit",
        "/w/.git",
        "/w/sub/.git/config",
        "/w/.GIT/config",
        "/w/.g\u200cit/config",
        "/w/.vscode/settings.json",
        "/w/.idea/workspace.xml",
        "/w/.claude/settings.json",
        "/w/.claude/settings.local.json",
        "/w/.mcp.json",
        "/home/me/.bashrc",
        "/home/me/.ZSHRC",
        "/home/me/.ssh/authorized_keys",
        "/home/me/.config/git/config",
        "/home/me/.config/autostart/x.desktop",
        "/home/me/.local/bin/ls",
        "/w/.husky/pre-commit",
        "/w/.npmrc",
        "/w/.claude/worktrees/a/.git/config",
        "/w/.git/.claude/worktrees/a",
    ],
)
def test_what_runs_later_or_decides_what_runs_is_protected(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path",
    [
        "/w/src/main.py",
        "/w/.gitignore",
        "/w/git/config",
        "/w/.claude/worktrees/a/main.py",
        "/w/.env",
        "/w/.config/app.toml",
        "/w/local/bin/x",
        "/w/CLAUDE.md",
    ],
)
def test_what_people_edit_every_day_is_not(path: str) -> None:
    assert not is_protected(path)


def test_keys_are_not_read_just_because_they_lie_near() -> None:
    assert holds_keys("/home/me/.ssh/id_ed25519")
    assert holds_keys("/home/me/.NETRC")
    assert not holds_keys("/home/me/notes.txt")


OWN = "/w/.claude/worktrees/a"
WORKTREE = Worktree(top="/w", path=OWN, cwd=OWN, branch="worktree-a")


def made(text: str, behavior: Behavior) -> Rule:
    rule = parse_rule(text, behavior, "user", "/w")
    assert isinstance(rule, Rule)
    return rule


def decided(tool: str, *rules: Rule, cwd: str = OWN, mode: str = "acceptEdits", **input: Any) -> Decision:
    request = ToolRequest(tool=tool, input=input, cwd=cwd, worktree=WORKTREE)
    return decide(
        request, WorktreeRules.for_worktree(RuleSet(cwd="/w", rules=rules), WORKTREE), mode, Tree({f"{OWN}/top": "/w"})
    )


@pytest.mark.parametrize(
    "path", ["/w/x", "../../../x", "../b/x", ".git", "/w/.git/hooks/x", "top/x", ".claude/settings.json"]
)
def test_nothing_but_its_own_checkout_is_changed_unasked(path: str) -> None:
    assert isinstance(decided("Write", made("Edit(**)", "allow"), file_path=path), Ask)


@pytest.mark.parametrize("command", ["git commit -m x", "npm test"])
def test_rules_that_allow_commands_do_not_count_in_the_checkout_of_the_person(command: str) -> None:
    rules = [made("Bash(git commit:*)", "allow"), made("Bash(npm test)", "allow")]

    assert isinstance(decided("Bash", *rules, command=command), Allow)
    assert isinstance(decided("Bash", *rules, command=command, cwd="/w"), Ask)
    assert isinstance(decided("Bash", *rules, command=command, cwd=f"{OWN}/top"), Ask)
    assert isinstance(decided("Bash", *rules, command=f"cd /w && {command}"), Ask)


def test_rules_that_allow_commands_do_not_count_in_a_folder_that_is_not_known() -> None:
    rules = [made("Bash(npm test)", "allow"), made("Bash(cd:*)", "allow")]

    assert isinstance(decided("Bash", *rules, command="cd - && npm test"), Ask)


@pytest.mark.parametrize("rule", ["Read(/keys/**)", "Read(./keys/one)", "Read(//w/keys/one)"])
@pytest.mark.parametrize("place", ["/w", OWN, "/w/.claude/worktrees/b", "/w/.claude/worktrees/b/.claude/worktrees/c"])
def test_what_is_denied_of_a_checkout_is_denied_of_every_worktree(rule: str, place: str) -> None:
    """The same holds for the session itself."""
    deny = made(rule, "deny")
    request = ToolRequest(tool="Read", input={"file_path": f"{place}/keys/one"}, cwd="/w")
    rules = RuleSet(cwd="/w", rules=(deny,))

    assert isinstance(decided("Read", deny, file_path=f"{place}/keys/one"), Deny)
    assert isinstance(decided("Bash", deny, command=f"cat {place}/keys/one", mode="bypassPermissions"), Deny)
    assert isinstance(decide(request, rules, "default", Tree()), Deny)
    assert rules.is_hidden(f"{place}/keys/one", Tree())
    assert not rules.is_hidden(f"{place}/other/one", Tree())


@pytest.mark.parametrize("tool", ["Write", "Edit"])
@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
def test_a_rule_for_a_whole_file_tool_means_the_worktree(tool: str, mode: str) -> None:
    rule = made(tool, "allow")

    assert isinstance(decided(tool, rule, mode=mode, file_path=f"{OWN}/x"), Allow)
    assert isinstance(decided(tool, rule, mode=mode, file_path="src/x"), Allow)
    for path in ("/w/x", "/w/src/x", "../../../x", "top/x", "/w/.claude/worktrees/b/x", "/etc/x"):
        assert isinstance(decided(tool, rule, mode=mode, file_path=path), Ask), path


def test_a_rule_for_a_whole_file_tool_means_further_working_directories_too() -> None:
    rules = WorktreeRules.for_worktree(RuleSet(cwd="/w", rules=(made("Write", "allow"),), folders=("/more",)), WORKTREE)
    request = ToolRequest(tool="Write", input={"file_path": "/more/x"}, cwd=OWN, worktree=WORKTREE)

    assert isinstance(decide(request, rules, "default", Tree()), Allow)
