"""Which commands run in the sandbox, and what is allowed because of it."""

from __future__ import annotations

from typing import Any

import pytest

from parley.permissions.base import Allow, Ask, Deny, SandboxRules, ToolRequest
from parley.permissions.boundary import list_excluded, list_paths_and_hosts
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet

HOME = "/home/me"
AUTO = SandboxRules(auto_allows=True)


def rule(text: str, behavior: Any) -> Rule:
    found = parse_rule(text, behavior, "user", "/project")
    assert isinstance(found, Rule)
    return found


def judge(
    command: str, sandbox: SandboxRules | None, *rules: Rule, mode: str = "default", outside: bool | None = None
) -> Any:
    input = {"command": command} | ({} if outside is None else {"dangerouslyDisableSandbox": outside})
    request = ToolRequest(tool="Bash", input=input, cwd="/project", search_path="/usr/bin:/bin", home=HOME)
    return decide(request, RuleSet(cwd="/project", rules=rules, sandbox=sandbox), mode, RealFilesystem(HOME))


@pytest.mark.parametrize(
    ("command", "patterns", "expected"),
    [
        ("docker ps", ["docker"], True),
        ("docker ps -a | docker cp x y", ["docker"], True),
        ("docker ps && rm -rf x", ["docker"], False),
        ("docker ps && git status", ["docker", "git *"], True),
        ("docker ps > out.txt", ["docker"], False),
        ("docker ps 2>&1", ["docker"], True),
        ("docker ps $(id)", ["docker"], False),
        ("cd /tmp && docker ps", ["docker", "cd *"], False),
        ("PATH=. docker ps", ["docker"], False),
        ("docker-evil", ["docker"], False),
        ("docker-compose up", ["docker-compose"], True),
        ("git push origin", ["git push:*"], True),
        ("./docker ps", ["docker"], False),
        ("git status", ["git"], True),
        ("git -c alias.x='!id' x", ["git"], False),
        ("git --exec-path=. status", ["git"], False),
        ("npm test", ["npm test"], True),
        ("npm test -- x", ["npm test"], False),
        ("npm run build", ["npm run *"], True),
        ("docker ps", [], False),
    ],
)
def test_a_line_is_excluded_only_as_a_whole(command: str, patterns: list[str], expected: bool) -> None:
    assert bool(list_excluded(command, tuple(patterns), HOME)) is expected


def test_a_command_in_the_sandbox_is_allowed_without_approval() -> None:
    assert isinstance(judge("make", None), Ask)
    assert isinstance(judge("make", SandboxRules()), Ask)
    decision = judge("make", AUTO)
    assert isinstance(decision, Allow)
    assert decision.scope.confined == "sandbox"


def test_rules_modes_and_safety_checks_hold_in_the_sandbox() -> None:
    assert isinstance(judge("make", AUTO, rule("Bash(make)", "deny")), Deny)
    assert isinstance(judge("make", AUTO, rule("Bash(make *)", "ask")), Ask)
    assert isinstance(judge("make", AUTO, mode="plan"), Ask)
    assert isinstance(judge("echo x > .mcp.json", AUTO), Ask)
    assert isinstance(judge("rm -rf /", AUTO, mode="bypassPermissions"), Ask)


def test_what_runs_outside_is_not_allowed_because_of_the_sandbox() -> None:
    excluded = SandboxRules(auto_allows=True, excluded=("make",))
    assert isinstance(judge("make", excluded), Ask)
    assert isinstance(judge("make install", SandboxRules(auto_allows=True, excluded=("make install",))), Ask)
    assert isinstance(judge("make check", SandboxRules(auto_allows=True, excluded=("make install",))), Allow)


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions", "plan"])
def test_a_command_that_wants_out_always_asks(mode: str) -> None:
    decision = judge("make", AUTO, rule("Bash", "allow"), mode=mode, outside=True)
    assert isinstance(decision, Ask)
    assert decision.reason_type == "sandboxOverride"


def test_a_command_that_wants_out_is_denied_where_nothing_may_leave() -> None:
    closed = SandboxRules(auto_allows=True, allows_outside=False)
    assert isinstance(judge("make", closed, outside=True, mode="bypassPermissions"), Deny)
    assert isinstance(judge("make", AUTO, outside=True, mode="dontAsk"), Deny)
    assert isinstance(judge("make", closed, outside=False), Allow)
    # Without a sandbox the flag means nothing.
    assert isinstance(judge("make", None, rule("Bash(make)", "allow"), outside=True), Allow)


def test_a_reader_is_confined_and_a_command_that_a_rule_allows_is_not() -> None:
    assert judge("ls", None).scope.confined == "reader"
    assert judge("make", None, rule("Bash(make)", "allow")).scope.confined == ""
    assert judge("ls", None, mode="bypassPermissions").scope.confined == ""


def test_rules_for_files_and_hosts_apply_to_commands() -> None:
    rules = (
        rule("Edit(//data/**)", "allow"),
        rule("Edit(//var/*/x)", "allow"),
        rule("Edit(/frozen)", "deny"),
        rule("Read(~/keys/**)", "deny"),
        rule("Read(.env)", "deny"),
        rule("WebFetch(domain:a.example)", "allow"),
        rule("WebFetch(domain:b.example)", "deny"),
        rule("Bash(ls)", "allow"),
    )

    found = list_paths_and_hosts(rules, "/project", HOME)

    assert found.edit == ("/data",)
    assert found.no_edit == ("/project/frozen",)
    assert found.no_read == ("/home/me/keys", "/project/**/.env")
    assert (found.hosts, found.no_hosts) == (("a.example",), ("b.example",))
