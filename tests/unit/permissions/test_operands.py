"""What a rule for the beginning of a command does not approve, and the reason shown."""

from __future__ import annotations

import pytest

from parley.permissions.base import Allow, Ask, Decision, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell.special_readers import edits_lines
from tests.helpers.file_tree import Tree


def decided(command: str, *allow: str, cwd: str = "/w", session: str = "/w", deny: str = "") -> Decision:
    texts: list[tuple[str, Behavior]] = [(text, "allow") for text in allow] + [(deny, "deny")] * bool(deny)
    read = [parse_rule(text, behavior, "user", "/w") for text, behavior in texts]
    rules = RuleSet(cwd=session, rules=tuple(rule for rule in read if isinstance(rule, Rule)))
    return decide(ToolRequest(tool="Bash", input={"command": command}, cwd=cwd), rules, "default", Tree())


@pytest.mark.parametrize(
    ("command", "rule", "words"),
    [
        ("git log --output=.git/x", "git log:*", ("--output=.git/x",)),
        ("sort -o out x", "sort:*", ("-o", "sort")),
        ("tee .bashrc", "tee:*", (".bashrc", "/w/.bashrc")),
        ("dd of=.envrc", "dd:*", ("of=.envrc", "/w/.envrc")),
        ("git config core.fsmonitor ./x", "git:*", ("core.fsmonitor",)),
        ("git -c core.hooksPath=x status", "git:*", ("core.hooksPath",)),
        ("git clone --template=x u", "git:*", ("--template=x",)),
        ("tar -I ./x -xf a", "tar:*", ("-I",)),
        ("sed 'w x' y", "sed:*", ("w x",)),
        ("uniq a b", "uniq:*", ("uniq",)),
        ("tee " + "x/" * 200 + ".git/config", "tee:*", ("...",)),
    ],
)
def test_the_question_names_the_word(command: str, rule: str, words: tuple[str, ...]) -> None:
    decision = decided(command, f"Bash({rule})")

    assert isinstance(decision, Ask)
    assert all(word in decision.reason for word in words), decision.reason
    assert len(decision.reason) < 1_200


def test_the_question_names_the_rule_that_denies_to_edit() -> None:
    decision = decided("tee gen/x", "Bash(tee:*)", deny="Edit(gen/**)")

    assert isinstance(decision, Ask)
    assert "gen/x" in decision.reason
    assert "Edit(gen/**) (user)" in decision.reason


def test_in_a_protected_folder_every_word_may_be_a_file_of_it() -> None:
    assert isinstance(decided("tee pre-commit", "Bash(tee:*)", cwd="/w/.git/hooks"), Ask)
    assert isinstance(decided("npm test", "Bash(npm test:*)", cwd="/w/.github"), Allow)


def test_a_session_that_was_started_in_a_protected_folder_works_there() -> None:
    home = "/home/me/.claude/x"

    assert isinstance(decided("tee notes", "Bash(tee:*)", cwd=home, session=home), Allow)
    assert isinstance(decided("tee .bashrc", "Bash(tee:*)", cwd=home, session=home), Ask)


def test_more_names_than_can_be_judged_are_asked_about() -> None:
    decision = decided("mytool " + ",".join(f"a{number}" for number in range(1_500)), "Bash(mytool:*)")

    assert isinstance(decision, Ask)


@pytest.mark.parametrize(
    "script",
    ["s/a/b/", "s|a|b|g;s#c#d#2p", "1,5d", "$!N;P;D", "/a/,/b/{s/x/y/;p}", ":a;N;$!ba;s/\\n/ /g", "1i\\\ntext w x",
     "y/ab/cd/", "/x/a one; two }", "s/[/]x/y/;p", "s/[^/]*$//",
     "s/[[:space:]]*$//", "# w x\np", "5q", "1~2d", "/a\\/b/Id", "2,+3p", "s/a\\/w b/c/"],
)  # fmt: skip
def test_a_script_that_changes_lines(script: str) -> None:
    assert edits_lines(script)


@pytest.mark.parametrize(
    "script",
    ["w x", "1w x", "s/a/b/w x", "s/a/b/gw x", "s/a/b/e", "e", "1e id", "e id", "r x", "R x", "W x", "s/a/b",
     "s/a/b/;w x", "p;w x", "{p;e}", "p\nw x", "a text\nw x", "b end;w x", "/x/{w y\n}", "!w x", "1!e",
     "s/a/b/\\", "v", "/\\\n[/a/[^/]e/w f"],
)  # fmt: skip
def test_a_script_that_may_do_more(script: str) -> None:
    assert not edits_lines(script)
