from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.permissions.rule import Behavior, MalformedRule, Rule, format_rule, parse_rule


def read(text: str, behavior: Behavior = "allow") -> Rule | MalformedRule:
    return parse_rule(text, behavior, "flag", "/w")


def parts(text: str, behavior: Behavior = "allow") -> tuple[str, str | None]:
    rule = read(text, behavior)
    assert isinstance(rule, Rule), rule
    return rule.tool, rule.spec


@pytest.mark.parametrize(
    ("text", "tool", "spec"),
    [
        ("Bash", "Bash", None),
        ("Bash()", "Bash", None),
        ("Bash(*)", "Bash", None),
        (" Read ", "Read", None),
        ("Bash(git push:*)", "Bash", "git push:*"),
        ("Bash(echo (a) b)", "Bash", "echo (a) b"),
        (r"Bash(echo \(a\))", "Bash", "echo (a)"),
        (r"Bash(a\\)", "Bash", "a\\"),
        ("Read(//etc/**)", "Read", "//etc/**"),
        ("WebFetch(domain:*.example.com)", "WebFetch", "domain:*.example.com"),
        ("mcp__github", "mcp__github", None),
        ("mcp__github__*", "mcp__github__*", None),
        ("mcp__github__get_*", "mcp__github__get_*", None),
        ("Agent(Explore)", "Task", "Explore"),
        ("Task(Explore)", "Task", "Explore"),
        ("Skill(pdf:*)", "Skill", "pdf:*"),
        ("WebSearch(query:weather)", "WebSearch", "query:weather"),
    ],
)
def test_a_rule_is_a_tool_and_what_stands_in_its_parentheses(text: str, tool: str, spec: str | None) -> None:
    assert parts(text) == (tool, spec)


def test_a_rule_keeps_where_it_comes_from() -> None:
    assert parse_rule("Read(/x)", "deny", "project", "/repo") == Rule(
        "deny", "Read", "/x", "project", "/repo", "Read(/x)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(x)",
        "Bash(git",
        "Bash(git)x",
        r"Bash(git\)",
        "Ba sh",
        "Bash)",
        "*",
        "mcp__*",
        "mcp__git*",
        "B*",
        "WebFetch(https://example.com)",
        "WebFetch(example.com)",
        "WebFetch(domain:)",
        "Read(!x)",
        "Write(src/**)",
        "Glob(src/**)",
        "TodoWrite(x)",
        "Bash( )",
        "Bash(a\x00b)",
        "Read(" + "{a,b}" * 60 + ")",
    ],
)
def test_a_malformed_allow_rule_grants_nothing_and_says_why(text: str) -> None:
    problem = read(text)

    assert isinstance(problem, MalformedRule)
    assert problem.text == text
    assert problem.source == "flag"
    assert problem.reason


@pytest.mark.parametrize("text", ["*", "mcp__*", "mcp__git*", "Write(secrets/**)", "Glob(secrets/**)"])
def test_what_would_allow_too_much_may_well_deny(text: str) -> None:
    assert isinstance(read(text, "deny"), Rule)
    assert isinstance(read(text, "ask"), Rule)


@pytest.mark.parametrize("text", ["Read(!x)", "Write(!x)", "Glob(!x)", "Grep(" + "{a,b}" * 60 + ")"])
def test_a_pattern_that_cannot_be_read_denies_nothing_and_says_why(text: str) -> None:
    problem = read(text, "deny")

    assert isinstance(problem, MalformedRule)
    assert problem.reason


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_contents_survive_being_written_and_read_again(spec: str) -> None:
    if spec.strip() and spec != "*":
        assert parts(format_rule("Bash", spec)) == ("Bash", spec)


def test_a_rule_for_every_call_is_written_as_the_bare_tool() -> None:
    assert format_rule("Bash", None) == "Bash"
