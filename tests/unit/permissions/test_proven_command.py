"""Files that a line moves are checked by their former paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.permissions.command import MOVES_LINK
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from tests.helpers.file_tree import Tree

LINKS = {"/w/d/out": "/etc/x", "/w/d/near": "../x", "/w/d/folder": "/etc/folder"}


def decided(command: str, mode: str = "acceptEdits", *rules: Rule, view: Tree | None = None) -> Decision:
    request = ToolRequest(tool="Bash", input={"command": command}, cwd="/w")
    return decide(request, RuleSet(cwd="/w", rules=rules), mode, view or Tree(LINKS))


@pytest.mark.parametrize(
    "command",
    [
        "mv d e && cp p e/out",
        "cp -r d e && cp p e/out",
        "mv d e && echo x > e/out",
        "mv d e && cat e/out",
        "mv d e; touch e/d/out",
        "cp p e/out & mv d e",
        "mv d e && mv e f && cat f/out",
        "cd d && mv . ../e; mv ../d ../e && cat ../e/out",
        "mv d/near k && cat k",
        "mv d e && cat e/folder/../x",
        "mv d e && cd e/folder && ls",
        "mv a/b c && mv c/d a && cat a/x",
    ],
)
def test_a_link_that_the_line_itself_moves_is_not_followed_unasked(command: str) -> None:
    assert isinstance(decided(command), Ask)


def test_a_moved_link_is_asked_about_after_rules_for_both_commands() -> None:
    rules = [parse_rule(text, "allow", "user", "/w") for text in ("Bash(mv:*)", "Bash(cp:*)")]

    decision = decided("mv d e && cp p e/out", "default", *(rule for rule in rules if isinstance(rule, Rule)))

    assert isinstance(decision, Ask)
    assert decision.reason == MOVES_LINK


def test_a_denied_file_stays_denied_under_the_name_it_gets() -> None:
    rule = parse_rule("Read(a/keys/**)", "deny", "user", "/w")
    assert isinstance(rule, Rule)

    assert isinstance(decided("mv a b && cat b/keys/one", "bypassPermissions", rule), Deny)


def test_a_folder_with_denied_files_does_not_get_another_name_unasked() -> None:
    rule = parse_rule("Read(a/keys/**)", "deny", "user", "/w")
    assert isinstance(rule, Rule)

    assert isinstance(decided("mv a b", "acceptEdits", rule), Ask)
    assert isinstance(decided("mv A/ b", "acceptEdits", rule), Ask)
    assert isinstance(decided("mv a/other b", "acceptEdits", rule), Allow)


@pytest.mark.parametrize(
    "command",
    ["mv a b && cat b", "cp a b && sed -i s/x/y/ b", "mkdir e && mv a e/ && cat e/a", "mv d/near k", "cp -r d e"],
)
def test_moving_without_links_on_the_way_is_an_edit_like_any_other(command: str) -> None:
    assert isinstance(decided(command), Allow)


@pytest.mark.parametrize("command", ["cp -r d e", "cp -a d e/", "cp --recursive d e", "cp -R -t e d"])
def test_a_folder_is_not_copied_over_another_unasked(command: str) -> None:
    """The existing folder may contain symlinks, and the copy writes through them."""
    assert isinstance(decided(command, view=Tree(files=["/w/e", "/w/e/d"])), Ask)
    assert isinstance(decided(command, view=Tree(files=["/w/e"])), Allow)


def test_a_folder_is_not_copied_over_one_that_the_line_makes() -> None:
    assert isinstance(decided("cp -r links/d e && cp -r d e", view=Tree(files=["/w/e"])), Ask)


def test_the_real_view_sees_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    view = RealFilesystem(str(tmp_path))

    assert view.exists(str(tmp_path / "link"))
    assert not view.exists(str(tmp_path / "nowhere"))
    assert not view.exists("/a\0b")


@pytest.mark.parametrize("command", ["mv logs/*.log done/", "mkdir done && cp logs/*.log done/ && ls done"])
def test_many_files_that_are_moved_at_once_are_not_compared_with_each_other(command: str) -> None:
    view = Tree(files=[f"/w/logs/{number}.log" for number in range(200)])
    rules = [parse_rule(text, "allow", "user", "/w") for text in ("Bash(mv:*)", "Bash(cp:*)", "Bash(mkdir:*)")]

    assert isinstance(decided(command, "acceptEdits", *(r for r in rules if isinstance(r, Rule)), view=view), Allow)


@pytest.mark.parametrize("command", ["cp -r tree x", "mv tree x", "cp -rT tree x", "mkdir x && cp -r tree/. x"])
def test_a_folder_with_a_protected_file_deep_in_it_gets_no_other_name(tmp_path: Path, command: str) -> None:
    def kind(line: str) -> type:
        request = ToolRequest(tool="Bash", input={"command": line}, cwd=str(tmp_path))
        return type(decide(request, RuleSet(cwd=str(tmp_path)), "acceptEdits", RealFilesystem(str(tmp_path))))

    (tmp_path / "tree/a/b").mkdir(parents=True)
    (tmp_path / "tree/a/b/notes").touch()
    assert kind("cp -r tree x") is kind("mv tree x") is Allow
    (tmp_path / "tree/a/b/.envrc").touch()
    assert kind(command) is Ask
    assert kind("rm -rf tree") is Allow
