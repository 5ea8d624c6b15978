"""Every decision has a budget: a call over it needs approval in every mode, with a reason."""

from __future__ import annotations

import pytest

from parley.permissions import patterns
from parley.permissions.base import Allow, Ask, Decision, Deny, OverBudget, ToolRequest
from parley.permissions.decision import MODES, decide
from parley.permissions.filesystem import MAX_PARTS, CachedFilesystem, resolve_path
from parley.permissions.patterns import MAX_PATH_CHARACTERS
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from tests.helpers.file_tree import Tree


def decided(tool: str, value: str, mode: str, *denied: str, links: dict[str, str] | None = None) -> Decision:
    read = [parse_rule(text, "deny", "flag", "/w") for text in denied]
    rules = RuleSet(cwd="/w", rules=tuple(rule for rule in read if isinstance(rule, Rule)))
    parameter = {"Bash": "command", "Glob": "pattern", "NotebookEdit": "notebook_path"}.get(tool, "file_path")
    return decide(ToolRequest(tool=tool, input={parameter: value}, cwd="/w"), rules, mode, Tree(links))


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize(
    ("tool", "value", "reason"),
    [
        ("Read", "a/" * 10_000, f"The path is too long to check (20,003 characters, at most {MAX_PATH_CHARACTERS:,})"),
        ("Edit", "a/" * 300, f"The path goes through too many folders to check (301 folders, at most {MAX_PARTS})"),
        ("Glob", "a/" * 10_000 + "*.py", "The path is too long to check (20,002 characters, at most 4,096)"),
        ("Bash", "$(" * 20_000 + "ls" + ")" * 20_000, "too long to check (60,002 characters, at most 16,000)"),
        ("Bash", "$(" * 3_000 + "ls" + ")" * 3_000, "The command has too many operators and brackets to check"),
        ("Bash", "a=(" * 650, "The command is too deeply nested or too malformed to check"),
        ("Bash", "sudo " * 40 + "ls $x", "Its commands are nested too deeply to check (at most 12 deep)"),
        ("Bash", "echo $x; " + "rm a/b; cd d; " * 3, ""),
        ("Bash", "".join(f"cd d{n}; rm -r e{n}; " for n in range(60)) + "$x", "too many files to check"),
    ],
    ids=["long", "deep", "pattern", "nested", "marks", "malformed", "wrapped", "small", "deletes"],
)  # fmt: skip
def test_what_costs_too_much_is_asked_about_in_every_mode_and_says_why(
    tool: str, value: str, reason: str, mode: str
) -> None:
    decision = decided(tool, value, mode)

    if not reason:
        assert not isinstance(decision, Ask) or "to check" not in decision.reason
    elif mode == "dontAsk":
        assert isinstance(decision, Deny)
    else:
        assert isinstance(decision, Ask)
        assert reason in decision.reason


def test_a_rule_for_the_whole_tool_counts_whatever_a_call_costs() -> None:
    decision = decided("Read", "a/" * 10_000, "bypassPermissions", "Read")

    assert isinstance(decision, Deny)
    assert decision.rule is not None


def test_a_long_file_in_a_here_document_is_within_the_budget() -> None:
    body = "\n".join(f"def function_{n}(a, b): return (a, [b], {{'c': {n}}})" for n in range(2_000))
    command = f"cat > a.py <<'EOF'\n{body}\nEOF\npython3 a.py"

    assert isinstance(decided("Bash", command, "bypassPermissions", "Bash(rm:*)"), Allow)


def test_what_looks_like_a_here_document_within_quotes_hides_nothing() -> None:
    decision = decided("Bash", "echo \"\n<<'E'\"\nrm x\nE", "bypassPermissions", "Bash(rm:*)")

    assert isinstance(decision, Deny)


def test_a_denied_command_in_front_of_one_that_costs_too_much_stays_denied() -> None:
    decision = decided("Bash", "rm x; " + "$(" * 3_000, "bypassPermissions", "Bash(rm:*)")

    assert isinstance(decision, Deny)


def test_a_path_over_the_budget_may_not_be_mentioned_where_files_are_denied() -> None:
    rule = parse_rule("Read(.env)", "deny", "flag", "/w")
    assert isinstance(rule, Rule)

    assert RuleSet(cwd="/w", rules=(rule,)).is_hidden("/w/" + "a/" * 10_000, Tree())
    assert not RuleSet(cwd="/w").is_hidden("/w/" + "a/" * 10_000, Tree())


def test_links_that_lengthen_a_path_count() -> None:
    links = {"/w/a": "b/" * 200 + "../" * 200 + "a"}

    with pytest.raises(OverBudget, match="too many folders"):
        resolve_path("/w/a", Tree(links).readlink)


def test_a_decision_looks_at_so_many_names_only() -> None:
    glance = CachedFilesystem(Tree())

    with pytest.raises(OverBudget, match="too many files"):
        list(map(glance.resolve, (f"/w/{number}" for number in range(10_000))))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*a*a*a*a*a*a*a*a*b", "a" * 100_000, False),
        ("a*b", "axxb", True),
        ("a*a", "a", False),
        ("*", "", True),
        ("a", "a", True),
        ("a", "b", False),
        ("*a*", "xay", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
    ],
)
def test_stars_stand_for_any_text(pattern: str, text: str, expected: bool) -> None:
    assert patterns.matches_text(pattern, text) is expected


def test_a_host_that_is_too_long_is_none() -> None:
    assert patterns.parse_host("https://" + "é." * 20_000 + "org") is None
