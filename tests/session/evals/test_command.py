"""`parley eval`: what it prints and how it exits. The engine runs in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.cli.commands.subcommand import run_subcommand
from parley.errors import InvalidArguments

SUITE = """
[[configuration]]
name = "good"
model = "scripted:good.toml"

[[configuration]]
name = "bad"
model = "scripted:bad.toml"

[[case]]
name = "greeting"
prompt = "Say hello."
expect.result_contains = "Hello"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.toml").write_text('at_end = "repeat"\n[[turn]]\ntext = "Hello."\n')
    (tmp_path / "bad.toml").write_text('at_end = "repeat"\n[[turn]]\ntext = "No."\n')
    (tmp_path / "evals.toml").write_text(SUITE)
    return tmp_path


def read_json(capfd: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capfd.readouterr().out)


def test_the_table_has_rates_with_intervals_and_the_reason_of_each_failure(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_subcommand("eval", ["evals.toml"]) == 1

    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[:5] for line in lines[1:3]] == [
        ["good", "1/1", "100%", "21%", "to"],
        ["bad", "0/1", "0%", "0%", "to"],
    ]
    assert "    result contains 'Hello': the result is 'No.'" in lines
    assert lines[-1] == "results: eval-results/evals-1"


def test_the_exit_code_follows_the_threshold_of_each_configuration(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_subcommand("eval", ["evals.toml", "--min-pass-rate", "0"]) == 0
    assert run_subcommand("eval", ["evals.toml", "--configuration", "good", "--runs", "2", "--json"]) == 0
    assert run_subcommand("eval", ["evals.toml", "--min-pass-rate=0.5", "--json"]) == 1
    assert sorted(path.name for path in Path("eval-results").iterdir()) == ["evals-1", "evals-2", "evals-3"]


def test_a_spent_budget_exits_with_3_and_a_resume_runs_only_the_rest(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_subcommand("eval", ["evals.toml", "--budget-turns", "1", "--concurrency", "1", "--json"]) == 3
    stopped = capfd.readouterr()
    assert "1 of 2 runs have no result: the budget of 1 turns is spent (1); continue with --resume" in stopped.err
    [first] = json.loads(stopped.out)["runs"]

    assert run_subcommand("eval", ["evals.toml", "--resume", "--json"]) == 1
    found = read_json(capfd)
    assert found["runs"][0] == first
    assert [(row["name"], row["passed"], row["total"]) for row in found["configurations"]] == [
        ("good", 1, 1),
        ("bad", 0, 1),
    ]


def test_two_results_are_compared(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    run_subcommand("eval", ["evals.toml", "--results", "before", "--runs", "6", "--json"])
    (folder / "bad.toml").write_text('at_end = "repeat"\n[[turn]]\ntext = "Hello!"\n')
    run_subcommand("eval", ["evals.toml", "--results", "after", "--runs", "6", "--json"])
    capfd.readouterr()

    assert run_subcommand("eval", ["--compare", "before", "after"]) == 0
    lines = capfd.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[1:3]}
    assert rows["good"][1:6] == ["6/6", "100%", "6/6", "100%", "+0%"]
    assert (rows["bad"][1:6], rows["bad"][-1]) == (["0/6", "0%", "6/6", "100%", "+100%"], "better")
    assert any(line.startswith("greeting") for line in lines)


def test_an_invalid_file_exits_with_2_and_names_the_line(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "evals.toml").write_text(SUITE.replace("prompt", "promt"))

    assert run_subcommand("eval", ["evals.toml"]) == 2
    assert "Error: evals.toml:12: case[0].promt: unknown key; did you mean 'prompt'?" in capfd.readouterr().err
    assert run_subcommand("eval", ["evals.toml", "--compare", "evals.toml", "--json"]) == 2
    assert run_subcommand("eval", ["none.toml"]) == 2


@pytest.mark.parametrize(
    "words", [["--runs", "0"], ["--min-pass-rate", "2"], ["--budget-usd", "x"], ["other"], ["--compare"]]
)
def test_a_wrong_argument_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidArguments):
        run_subcommand("eval", ["evals.toml", *words])


def test_a_rubric_without_a_judge_is_reported(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "evals.toml").write_text(SUITE + 'expect.rubric = "Friendly."\n')

    assert run_subcommand("eval", ["evals.toml", "--configuration", "good", "--json"]) == 0
    printed = capfd.readouterr()
    assert "there is no [judge] in evals.toml; the rubrics of these cases are not judged: greeting" in printed.err
    assert json.loads(printed.out)["runs"][0]["checks"][-1]["detail"] == "not judged: there is no [judge]"
