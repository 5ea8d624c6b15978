"""The fields of a decision besides the verdict: reason, rule, scope, suggestions."""

from __future__ import annotations

from typing import Any

import pytest

from parley.permissions.base import Allow, Ask, Decision, Deny, ToolRequest
from parley.permissions.command import CLIMBS_PAST_LINK
from parley.permissions.decision import decide
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.workspace.base import Scope
from tests.helpers.file_tree import Tree

ACCEPT = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def made(text: str, behavior: Behavior) -> Rule:
    rule = parse_rule(text, behavior, "user", "/w")
    assert isinstance(rule, Rule)
    return rule


def decided(
    tool: str, mode: str = "default", rule: Rule | None = None, view: Tree | None = None, **input: Any
) -> Decision:
    request = ToolRequest(tool=tool, input=input, cwd="/w", plan_file="/home/me/.claude/plans/p.md")
    rules = RuleSet(cwd="/w", rules=() if rule is None else (rule,))
    return decide(request, rules, mode, view or Tree())


def asked(tool: str, mode: str = "default", rule: Rule | None = None, view: Tree | None = None, **input: Any) -> Ask:
    decision = decided(tool, mode, rule, view, **input)
    assert isinstance(decision, Ask), decision
    return decision


def add(*contents: tuple[str, str], to: str = "localSettings") -> dict[str, Any]:
    rules = [{"toolName": tool, "ruleContent": spec} for tool, spec in contents]
    return {"type": "addRules", "rules": rules, "behavior": "allow", "destination": to}


def folder(path: str) -> dict[str, Any]:
    return {"type": "addDirectories", "directories": [path], "destination": "session"}


def test_an_allow_by_rule_names_the_rule() -> None:
    rule = made("Bash(npm test:*)", "allow")

    assert decided("Bash", rule=rule, command="npm test -v") == Allow(
        input={"command": "npm test -v"},
        source="rule",
        reason="Bash(npm test:*)",
        reason_type="subcommandResults",
        rule=rule,
    )


def test_a_denial_by_rule_names_the_rule_and_its_source() -> None:
    rule = made("Read(.env)", "deny")
    denial = decided("Read", rule=rule, file_path="/w/.env")

    assert isinstance(denial, Deny)
    assert (denial.source, denial.reason, denial.reason_type, denial.rule) == ("rule", "Read(.env)", "rule", rule)
    assert "Read(.env) (user)" in denial.message


def test_an_allowed_file_is_the_one_that_was_judged_and_no_other() -> None:
    view = Tree({"/w/link": "real.txt"})

    reading = decided("Read", view=view, file_path="/w/link")
    bypassing = decided("Write", "bypassPermissions", view=view, file_path="/w/link")

    assert isinstance(reading, Allow)
    assert isinstance(bypassing, Allow)
    assert reading.scope == bypassing.scope == Scope(files=("/w/real.txt",))


def test_a_search_reaches_its_folder_and_what_is_beneath() -> None:
    search = decided("Glob", pattern="src/**/*.py")

    assert isinstance(search, Allow)
    assert search.scope == Scope(folders=("/w", "/w/src"), files=("/w", "/w/src"))


def test_what_is_asked_about_reaches_no_further_once_it_is_approved() -> None:
    assert asked("Read", file_path="/etc/hosts").scope == Scope(files=("/etc/hosts",))


def test_the_plan_file_may_be_written_in_plan_mode_only() -> None:
    plan = "/home/me/.claude/plans/p.md"

    allowed = decided("Write", "plan", file_path=plan)

    assert isinstance(allowed, Allow)
    assert allowed.reason_type == "other"
    assert isinstance(decided("Write", file_path=plan), Ask)
    assert isinstance(decided("Write", "plan", view=Tree({plan: "/etc/x"}), file_path=plan), Ask)


def test_an_unknown_mode_allows_no_more_than_the_default() -> None:
    assert isinstance(decided("Write", "whatever", file_path="/w/a"), Ask)


def test_a_tool_that_the_client_runs_needs_no_approval_unless_a_rule_says_otherwise() -> None:
    request = ToolRequest(tool="Lookup", input={}, cwd="/w", runs_elsewhere=True)

    def verdict(*rules: Rule) -> type[Decision]:
        return type(decide(request, RuleSet(cwd="/w", rules=rules), "default", Tree()))

    assert [verdict(), verdict(made("Lookup", "ask")), verdict(made("Lookup", "deny"))] == [Allow, Ask, Deny]


@pytest.mark.parametrize(
    "command",
    [
        "cat link/../a",
        "cd link && cat ../a",
        "cd src && cd ../link && cat ../a",
        "cat a > link/../b",
        " && ".join(["cd a"] * 20) + " && cat ../a",
    ],
)
def test_a_line_that_may_climb_out_of_a_linked_folder_is_asked_about(command: str) -> None:
    assert asked("Bash", "acceptEdits", view=Tree({"/w/link": "/etc/deep"}), command=command).reason == CLIMBS_PAST_LINK


def test_leaving_a_folder_that_is_not_a_link_is_not_a_reason_to_ask() -> None:
    assert isinstance(decided("Bash", command="cd src && cat ../a"), Allow)


@pytest.mark.parametrize(
    ("tool", "input", "mode", "suggestions"),
    [
        ("Bash", {"command": "touch x.txt"}, "default", (add(("Bash", "touch x.txt")), folder("/w"), ACCEPT)),
        ("Bash", {"command": "touch y2"}, "default", (add(("Bash", "touch y2 *")), folder("/w"), ACCEPT)),
        (
            "Bash",
            {"command": "sleep 1.5; touch zz"},
            "default",
            (add(("Bash", "sleep 1.5; touch zz")), folder("/w"), ACCEPT),
        ),
        ("Bash", {"command": "echo a > b"}, "default", (add(("Bash", "echo a > b")), folder("/w"), ACCEPT)),
        (
            "Bash",
            {"command": "npm test && git push"},
            "default",
            (add(("Bash", "npm test *"), ("Bash", "git push *")),),
        ),
        ("Bash", {"command": "curl http://x/"}, "acceptEdits", (add(("Bash", "curl http://x/")),)),
        ("Bash", {"command": "cat /etc/hosts"}, "default", (add(("Read", "//etc/**"), to="session"),)),
        ("Bash", {"command": "cat /hosts"}, "default", (add(("Bash", "cat /hosts")),)),
        ("Bash", {"command": "touch 'a*'"}, "default", (ACCEPT,)),
        ("Bash", {"command": "npm test > log"}, "default", (add(("Bash", "npm test > log")),)),
        ("Bash", {"command": "npm test > log"}, "acceptEdits", (add(("Bash", "npm test *")),)),
        ("Bash", {"command": "sudo npm test"}, "default", (add(("Bash", "sudo npm test")),)),
        ("Bash", {"command": "rm *.log && curl x"}, "default", ()),
        ("Bash", {"command": "echo x > .git/config"}, "default", ()),
        ("Bash", {"command": "$X"}, "default", ()),
        ("Write", {"file_path": "/w/a"}, "default", (ACCEPT,)),
        ("Write", {"file_path": "/opt/a"}, "default", (folder("/opt"), ACCEPT)),
        ("Write", {"file_path": "/opt/a"}, "acceptEdits", (folder("/opt"),)),
        ("Write", {"file_path": "/w/.git/config"}, "default", ()),
        ("Write", {"file_path": "/w/a"}, "plan", ()),
        ("Read", {"file_path": "/etc/hosts"}, "default", (add(("Read", "//etc/**"), to="session"),)),
        ("Read", {"file_path": "/hosts"}, "default", ()),
        ("WebFetch", {"url": "https://a.org/x"}, "default", (add(("WebFetch", "domain:a.org")),)),
        ("WebFetch", {"url": "http://127.0.0.1/"}, "default", ()),
        ("Skill", {"skill": "pdf"}, "default", (add(("Skill", "pdf")),)),
    ],
)
def test_what_is_suggested_would_help(
    tool: str, input: dict[str, Any], mode: str, suggestions: tuple[Any, ...]
) -> None:
    assert asked(tool, mode, **input).suggestions == suggestions


def test_for_other_tools_the_tool_itself_is_suggested() -> None:
    rules = [{"toolName": "mcp__git__push"}]

    assert asked("mcp__git__push").suggestions == (
        {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "localSettings"},
    )


@pytest.mark.parametrize(
    "command",
    [
        "touch x.txt", "touch y2", "sleep 1.5; touch zz", "echo a > b", "npm test && git push", "cat /etc/hosts",
        "cat /etc/hosts /opt/a", "cat /hosts", "echo a > /opt/b", "npm test > out.txt", "npm test > /tmp/out.txt",
        "X=1 rm x", "PATH=. npm test", "sudo npm test", "env rm x", "eval ls", "nohup rm x", "xargs rm",
        "ls | xargs rm", "cd /opt && git status", "npm test < /etc/hosts", "cat /etc/hosts > b", "cp a /opt/b",
    ],
)  # fmt: skip
def test_a_suggestion_that_is_taken_ends_the_asking(command: str) -> None:
    assert isinstance(decided_with_suggestion(command, "default"), Allow)


@pytest.mark.parametrize("mode", ["acceptEdits", "auto"])
@pytest.mark.parametrize("command", ["npm test > out.txt", "echo a > /opt/b", "touch a; npm test", "sudo npm test"])
def test_it_does_so_in_the_modes_that_ask_less(command: str, mode: str) -> None:
    assert isinstance(decided_with_suggestion(command, mode), Allow)


@pytest.mark.parametrize("command", ["touch x.txt", "touch 'a*'", "sleep 1.5; touch zz", "echo a > b", "cp -r a/x ."])
def test_the_mode_is_suggested_if_it_ends_the_asking(command: str) -> None:
    view = Tree({"/w/x/link": "/etc"})
    suggested = asked("Bash", "default", view=view, command=command).suggestions

    assert (ACCEPT in suggested) == isinstance(decided("Bash", "acceptEdits", view=view, command=command), Allow)


def decided_with_suggestion(command: str, mode: str) -> Decision:
    """The decision after the first suggestion is applied."""
    [first, *_] = asked("Bash", mode, command=command).suggestions
    taken = tuple(made(f"{rule['toolName']}({rule['ruleContent']})", "allow") for rule in first["rules"])
    request = ToolRequest(tool="Bash", input={"command": command}, cwd="/w")
    return decide(request, RuleSet(cwd="/w", rules=taken), mode, Tree())


@pytest.mark.parametrize(
    ("home", "command", "denied", "expected"),
    [
        (None, "cat ~/a", "Read(//home/me/a)", Deny),
        ("/other", "cat ~/a", "Read(//other/a)", Deny),
        ("/other", "cat ~/a", "Read(//home/me/a)", Allow),
        ("/other", "cd && cat a", "Read(//other/a)", Deny),
        ("/other", "cat $HOME/a", "Read(//other/a)", Deny),
        ("", "cat ~/a", "Read(//x)", Ask),
        ("", "cd && cat a", "Read(//x)", Ask),
        ("w", "cat ~/a", "Read(//x)", Ask),
    ],
)
def test_a_tilde_leads_where_home_says_that_commands_get(
    home: str | None, command: str, denied: str, expected: type
) -> None:
    request = ToolRequest(tool="Bash", input={"command": command}, cwd="/w", home=home)
    rules = RuleSet(cwd="/w", rules=(made("Bash(cat:*)", "allow"), made(denied, "deny")))

    assert isinstance(decide(request, rules, "default", Tree()), expected)


@pytest.mark.parametrize("home", ["/other", "/home/me"])
@pytest.mark.parametrize("command", ["rm -rf ~", "rm -rf /other", "rm -rf /home/me"])
def test_the_home_of_commands_and_of_the_person_are_too_grave_to_delete(command: str, home: str) -> None:
    request = ToolRequest(tool="Bash", input={"command": command}, cwd="/w", home=home)
    decision = decide(request, RuleSet(cwd="/w"), "bypassPermissions", Tree())

    assert isinstance(decision, Ask)
