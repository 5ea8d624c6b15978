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
    first, second = found.turns
    assert (first.line, first.prompt) == (5, "notes")
    assert [(step.line, step.kind) for step in first.steps] == [(8, "say"), (9, "call")]
    assert [(step.line, step.kind) for step in second.steps] == [(16, "raw"), (20, "wait_ms")]
    assert found.file.on["initialize"].delay_ms == 10


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("ask = true", "aks = true", r"s:9: step `call`: found unknown key `aks`, .*; did you mean `ask`\?"),
        ("{ say", "{ sya", r"s:8: found `sya`, expected a step with one of say, .*; did you mean `say`\?"),
        ("wait_ms = 5", 'wait_ms = "5"', "s:20: step `wait_ms`: found a text, expected a number as `wait_ms`"),
        ("wait_ms = 5", "wait_ms = -1", "s:20: step `wait_ms`: Expected `float` >= 0"),
        ("wait_ms = 5", 'kill = "SIGNOTHING"', "s:20: step `kill`: unknown signal 'SIGNOTHING', expected a name"),
        ("wait_ms = 5", "", "s:20: found an empty step, expected a step"),
        ("delay_ms", "dely_ms", r"s:13: found unknown key `dely_ms`, .* did you mean `delay_ms`\?"),
        ("prompt", "promt", r"s:6: found unknown key `promt`, expected one of prompt, steps, result"),
        ('prompt = "notes"', "prompt = 3", r"s:6: found a whole number, expected a text as `turn\[0\].prompt`"),
        ("version", "versoin", r"s:2: found unknown key `versoin`, .* did you mean `version`\?"),
        ('"2.1.0"', "2", "s:2: found a whole number, expected a text as `version`"),
        ('"notes"', '"notes', "s:6:16: .*; expected TOML"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, error: str) -> None:
    assert old in GOOD

    with pytest.raises(UsageError, match=error):
        read_scenario(GOOD.replace(old, new, 1), "s")
