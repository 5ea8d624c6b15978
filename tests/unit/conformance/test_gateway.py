"""The sessions of a gateway as a target."""

from __future__ import annotations

import json

import pytest

from parley.conformance.gateway_bridge import session_flags
from parley.conformance.registry import read_suite
from parley.conformance.runner import SuitePlan, gateway_plan, is_gateway, select_checks, select_scenarios


def test_a_session_gets_the_flags_and_the_model_but_not_the_flags_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    given = ["--print", "--output-format", "stream-json", "--settings", '{"env": {"A": "1"}}', "--max-turns", "1"]

    *flags, settings = session_flags(given)

    assert flags == ["--max-turns", "1", "--settings"]
    wanted = {"A": "1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "key"}
    assert json.loads(settings) == {"env": wanted}


def test_only_conversations_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_TOKEN", "t")
    plan = gateway_plan(SuitePlan())

    assert plan.env == {"PARLEY_TOKEN": "t"}
    played = [name for name, scenario in read_suite().scenarios.items() if scenario.on_gateways]
    assert len(played) == 42
    assert {check.scenario for check in select_checks(plan)} == {*played, "*"}
    assert select_scenarios(plan, select_checks(plan)) == played
    assert is_gateway("http://127.0.0.1:8787")
    assert not is_gateway("claude")
