"""Cases from published vulnerabilities and from everyday work, each with its expected decision.

A line of decisions.jsonl: the call (`tool`, `input`), `mode`, rules (`allow`, `deny`, `ask`), optional `links`, `files`
and additional working `folders`, the expected decision (`expect`), and `why`. `/w` is the working directory.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.permissions.base import Allow, Deny, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from tests.helpers import paths
from tests.helpers.file_tree import Tree

CASES = [json.loads(line) for line in (paths.DATA / "permissions" / "decisions.jsonl").read_text().splitlines()]
BEHAVIORS: tuple[Behavior, ...] = ("allow", "deny", "ask")


def rules(case: dict[str, Any]) -> RuleSet:
    read = [parse_rule(text, behavior, "flag", "/w") for behavior in BEHAVIORS for text in case[behavior]]
    known = tuple(rule for rule in read if isinstance(rule, Rule))
    return RuleSet(cwd="/w", rules=known, folders=tuple(case.get("folders", ())))


def decided(case: dict[str, Any]) -> str:
    request = ToolRequest(
        tool=case["tool"], input=case["input"], cwd="/w", asks_user=case.get("asks_person", False), reads_only=False
    )
    decision = decide(request, rules(case), case["mode"], Tree(case.get("links"), case.get("files", ())))
    return "allow" if isinstance(decision, Allow) else "deny" if isinstance(decision, Deny) else "ask"


@pytest.mark.parametrize("case", CASES, ids=[f"{n}: {case['why'][:50]}" for n, case in enumerate(CASES, 1)])
def test_a_case_of_the_corpus_is_decided_as_it_says(case: dict[str, Any]) -> None:
    assert decided(case) == case["expect"], f"{case['tool']} {str(case['input'])[:200]}: {case['why']}"


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 500
