"""Scenario files: what they may contain, and where a mistake is."""

from __future__ import annotations

import pytest

from parley.errors import UsageError
from parley.fake.scenario import read_scenario

GOOD = '''# a scenario
version = "2.1.0"
start = [{ stderr = "hi [" }]

[[turn]]
prompt = "notes"
steps = [
  { say = "I will {look." },   # comment }
  { call = "Bash", input = { command = "cat" }, ask = true, result = "x" },
]

[on.initialize]
delay_ms = 10

[[turn]]
[[turn.steps]]
raw = """
steps = [{
"""
[[turn.steps]]
wait_ms = 5
'''


def test_steps_can_be_a_list_or_tables() -> None:
    found = read_scenario(GOOD)

    assert [(step.line, step.kind) for step in found.start] == [(3, "stderr")]
    first, second = found.turn
    assert (first.line, first.prompt) == (5, "notes")
    assert [(step.line, step.kind) for step in first.steps] == [(8, "say"), (9, "call")]
    assert [(step.line, step.kind) for step in second.steps] == [(16, "raw"), (20, "wait_ms")]
    assert found.on["initialize"].delay_ms == 10


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("ask = true", "aks = true", r"s:9: turn\[0\].steps\[1\].aks: unknown key \(choose from say, .*ask, "),
        ("{ say", "{ sya", r"s:8: turn\[0\].steps\[0\].sya: unknown key \(choose from say, "),
        ("wait_ms = 5", 'wait_ms = "5"', r"s:21: turn\[1\].steps\[1\].wait_ms: expected `float`, got `str`"),
        ("wait_ms = 5", "wait_ms = -1", "s:21: .*wait_ms: expected `float` >= 0"),
        ("wait_ms = 5", 'kill = "SIGNOTHING"', "s:20: .*: unknown signal 'SIGNOTHING', expected a name"),
        ("wait_ms = 5", "", r"s:20: turn\[1\].steps\[1\]: a step needs one of say, "),
        ("result = ", "pad_to_bytes = 1, result = ", r"s:9: .*: a step `call` has no `pad_to_bytes`, only call, input"),
        ("delay_ms", "dely_ms", r"s:13: .*dely_ms: unknown key; did you mean 'delay_ms'\?"),
        ("prompt", "promt", r"s:6: turn\[0\].promt: unknown key; did you mean 'prompt'\?"),
        ('prompt = "notes"', "prompt = 3", r"s:6: turn\[0\].prompt: expected `str \| null`, got `int`"),
        ("version", "versoin", r"s:2: versoin: unknown key; did you mean 'version'\?"),
        ('"2.1.0"', "2", "s:2: version: expected `str`, got `int`"),
        ('"notes"', '"notes', "s:6: not valid TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, error: str) -> None:
    assert old in GOOD

    with pytest.raises(UsageError, match=error):
        read_scenario(GOOD.replace(old, new, 1), "s")
