from __future__ import annotations

import pytest

from parley.workspace.sensitive_names import holds_keys, is_protected


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
