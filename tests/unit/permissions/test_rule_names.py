"""Which rules match a call: by every name of its tool, by its parameters, and by its delegate."""

from __future__ import annotations

from itertools import product

import pytest

from parley.permissions.base import Allow, Ask, Deny, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import MAX_CACHED, RuleSet
from parley.protocol.base import Json
from tests.helpers.file_tree import Tree

NAMES = (
    ("Task", "Agent"),
    ("TaskOutput", "BashOutput"),
    ("TaskStop", "KillShell"),
    ("ListMcpResourcesTool", "ListMcpResources"),
    ("ReadMcpResourceTool", "ReadMcpResource"),
)
VERDICTS: dict[Behavior, type] = {"allow": Allow, "deny": Deny, "ask": Ask}


def book(text: str, behavior: Behavior) -> RuleSet:
    rule = parse_rule(text, behavior, "user", "/w")
    assert isinstance(rule, Rule), rule
    return RuleSet(cwd="/w", rules=(rule,))


def decided(tool: str, input: Json, rules: RuleSet) -> type:
    return type(decide(ToolRequest(tool=tool, input=input, cwd="/w"), rules, "default", Tree()))


@pytest.mark.parametrize("behavior", VERDICTS)
@pytest.mark.parametrize(("ruled", "called"), [pair for names in NAMES for pair in product(names, names)])
def test_a_tool_is_meant_by_each_of_its_names(ruled: str, called: str, behavior: Behavior) -> None:
    assert decided(called, {}, book(ruled, behavior)) is VERDICTS[behavior]


@pytest.mark.parametrize(("ruled", "called"), [("Kill*", "TaskStop"), ("Agent*", "Task"), ("Bash*", "BashOutput")])
def test_a_pattern_denies_a_tool_by_each_of_its_names(ruled: str, called: str) -> None:
    assert decided(called, {}, book(ruled, "deny")) is Deny


@pytest.mark.parametrize(("ruled", "called"), [("Task", "TaskStop"), ("TaskStop", "TaskOutput"), ("Agent", "Skill")])
def test_a_name_means_no_other_tool(ruled: str, called: str) -> None:
    assert decided(called, {}, book(ruled, "deny")) is not Deny


@pytest.mark.parametrize("parameter", ["task_id", "shell_id", "bash_id"])
@pytest.mark.parametrize("rule", ["TaskStop(task_id:b1)", "KillShell(shell_id:b1)"])
def test_a_parameter_is_meant_by_its_older_names_too(rule: str, parameter: str) -> None:
    assert decided("TaskStop", {parameter: "b1"}, book(rule, "deny")) is Deny
    assert decided("TaskStop", {parameter: "b2"}, book(rule, "deny")) is Allow


@pytest.mark.parametrize(
    ("rule", "input", "fits"),
    [
        ("mcp__db__query(limit:5)", {"limit": 5}, True),
        ("mcp__db__query(limit:5)", {"limit": 50}, False),
        ("mcp__db__query(limit:5)", {"other": 5}, False),
        ("mcp__db__query(dry:true)", {"dry": True}, True),
        ("mcp__db__query(dry:true)", {"dry": False}, False),
        ("mcp__db__query(dry:None)", {"dry": None}, False),
        ("mcp__db__query(at:10:30)", {"at": "10:30"}, True),
    ],
)
def test_a_rule_on_a_parameter_means_its_value(rule: str, input: Json, fits: bool) -> None:
    assert decided("mcp__db__query", input, book(rule, "deny")) is (Deny if fits else Ask)


@pytest.mark.parametrize(
    ("rule", "skill", "allowed", "denied"),
    [
        ("Skill(pdf)", "pdf", True, True),
        ("Skill(pdf)", "/pdf", True, True),
        ("Skill(pdf)", " pdf ", True, True),
        ("Skill(pdf)", "PDF", False, True),
        ("Skill(PDF)", "pdf", False, True),
        ("Skill(pdf)", "pdf2", False, False),
        ("Skill(pdf)", "pdf x", False, False),
        ("Skill(pdf:*)", "pdf", True, True),
        ("Skill(pdf:*)", "pdf x", True, True),
        ("Skill(pdf:*)", "pdf:x", True, True),
        ("Skill(pdf:*)", "pdf2", False, False),
    ],
)
def test_who_does_the_work_is_denied_in_every_spelling_and_allowed_in_one(
    rule: str, skill: str, allowed: bool, denied: bool
) -> None:
    assert decided("Skill", {"skill": skill}, book(rule, "allow")) is (Allow if allowed else Ask)
    assert decided("Skill", {"skill": skill}, book(rule, "deny")) is (Deny if denied else Ask)


def test_rules_hold_however_many_tools_there_were_before() -> None:
    rules = book("mcp__s", "deny")

    for number in range(2 * MAX_CACHED):
        assert rules.find_tool_rule("deny", f"mcp__s__{number}") is not None
    assert rules.find_tool_rule("deny", "mcp__t__1") is None


def test_rules_do_not_read_a_file_under_the_name_of_another_parameter() -> None:
    decoy = {"path": "/w/secret", "file_path": "/w/a", "pattern": "x"}

    assert decided("Grep", decoy, book("Read(secret)", "deny")) is Deny
    assert (
        decided("NotebookEdit", {"notebook_path": "/w/secret", "file_path": "/w/a"}, book("Edit(secret)", "deny"))
        is Deny
    )


@pytest.mark.parametrize(
    ("rule", "tool", "server", "allowed", "denied"),
    [
        ("mcp__a", "mcp__a__x", "a", True, True),
        ("mcp__a", "mcp__a__b__x", "a", True, True),
        ("mcp__a", "mcp__a__b__x", "a__b", False, False),
        ("mcp__a", "mcp__a__b__x", "", False, True),
        ("mcp__a", "mcp__a___x", "a_", False, False),
        ("mcp__a", "mcp__a___x", "", False, True),
        ("mcp__a", "mcp__a__x", "", True, True),
        ("mcp__a__*", "mcp__a__b__x", "a", True, True),
        ("mcp__a__*", "mcp__a__b__x", "a__b", False, True),
        ("mcp__a__b", "mcp__a__b__x", "a__b", False, True),
        ("mcp__a__b", "mcp__a__b__x", "a", False, False),
        ("mcp__a__b__*", "mcp__a__b__x", "a", True, True),
        ("mcp__a__b__*", "mcp__a__b__x", "a__b", False, True),
        ("mcp__a__b__x", "mcp__a__b__x", "a__b", True, True),
        ("mcp__A", "mcp__a__x", "a", False, False),
    ],
)
def test_a_rule_is_about_a_server_and_a_tool(rule: str, tool: str, server: str, allowed: bool, denied: bool) -> None:
    asked = ToolRequest(tool=tool, input={}, cwd="/w", server=server)

    assert type(decide(asked, book(rule, "allow"), "default", Tree())) is (Allow if allowed else Ask)
    assert type(decide(asked, book(rule, "deny"), "default", Tree())) is (Deny if denied else Ask)
    assert type(decide(asked, book(f"{rule}(a:1)", "deny"), "default", Tree())) is Ask
