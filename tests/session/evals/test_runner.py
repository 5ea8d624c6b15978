"""Evaluations with real sessions in this process: checks, limits, the judge, skills, and what goes wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.evals.results import FILE_NAME, ResultsHeader, RunRecord, create_results, resume_results
from parley.evals.runner import EvalRunner
from parley.evals.suite import EvalBudget, digest_suite, plan_runs, read_suite
from parley.stores.wire_recording import read_wire_recording
from parley.testing import read_script, running

WRITE = '[[turn]]\ntools = [{ name = "Write", input = { file_path = "out.txt", content = "made" } }]\n'
DONE = '[[turn]]\ntext = "Done."\n'
HEAD = '[defaults]\nmodel = "scripted:script.toml"\nallowed_tools = ["Write"]\n'
CASE = '[[case]]\nname = "a"\nprompt = "Go."\n'


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-a-secret-of-this-test-only")


async def evaluate(folder: Path, suite: str, script: str = WRITE + DONE, **budget: Any) -> list[RunRecord]:
    """Run all cases; a second call with the same folder resumes."""
    (folder / "script.toml").write_text(script)
    (folder / "evals.toml").write_text(suite)
    read = read_suite(folder / "evals.toml")
    read = msgspec.structs.replace(read, budget=EvalBudget(**budget))
    digest = digest_suite(read)
    place = folder / "results"
    header = ResultsHeader(suite="evals.toml", digest=digest)
    results = resume_results(place, digest) if (place / FILE_NAME).exists() else create_results(place, header)
    try:
        await EvalRunner(read, results).run(plan_runs(read), read.concurrency)
    finally:
        results.close()
    return list(results.records.values())


async def test_a_run_passes_if_all_its_expectations_are_met(tmp_path: Path) -> None:
    expect = """
[case.expect]
result_contains = "Done"
result_matches = "^D"
files = { "out.txt" = "made" }
file_contains = { "in/notes.txt" = "milk" }
missing_files = ["other.txt"]
tools = ["Write"]
no_tools = ["Bash"]
commands = ["test $(cat out.txt) = made", "test -z \\"$ANTHROPIC_API_KEY\\""]
"""
    [run] = await evaluate(tmp_path, HEAD + CASE + 'files = { "in/notes.txt" = "buy milk" }\n' + expect)

    assert (run.outcome, run.reasons, run.turns, run.tools) == ("passed", [], 2, {"Write": 1})
    assert len(run.checks) == 9
    recording = read_wire_recording(tmp_path / "results" / f"{run.recording}.wire.jsonl")
    assert recording.exit_code == 0
    assert b'"subtype":"initialize"' in recording.sent_by("client")[0]
    assert any(b'"type":"result"' in line for line in recording.sent_by("engine"))


async def test_each_expectation_that_is_not_met_says_why(tmp_path: Path) -> None:
    expect = """
[case.expect]
result_contains = "Goodbye"
files = { "out.txt" = "other", "none.txt" = "" }
tools = ["Bash"]
no_tools = ["Write"]
commands = ["echo no; exit 3"]
"""
    [run] = await evaluate(tmp_path, HEAD + CASE + expect)

    assert run.outcome == "failed"
    assert run.reasons == [
        "result contains 'Goodbye': the result is 'Done.'",
        "file out.txt: it contains 'made' instead of 'other'",
        "file none.txt: cannot read the file: No such file or directory",
        "tool Bash called: called: Write",
        "tool Write not called: it was called 1 times",
        "command: echo no; exit 3: exit code 3: no",
    ]


async def test_a_command_that_hangs_is_ended_with_its_children_and_the_next_case_runs(tmp_path: Path) -> None:
    hang = f"sleep 300 & echo $! > {tmp_path}/child; wait"
    suite = "concurrency = 1\n" + HEAD + CASE
    suite += f"[[case.expect.commands]]\nrun = '{hang}'\ntimeout_seconds = 0.5\n"
    suite += CASE.replace('"a"', '"next"')
    first, second = await evaluate(tmp_path, suite)

    assert first.reasons == [
        f"command: {hang}: it did not end within 0.5 s (timeout_seconds); its processes were ended"
    ]
    assert second.outcome == "passed"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)


async def test_a_tool_that_no_rule_allows_is_denied_and_the_record_names_it(tmp_path: Path) -> None:
    suite = '[defaults]\nmodel = "scripted:script.toml"\n' + CASE + 'expect.missing_files = ["out.txt"]\n'
    [run] = await evaluate(tmp_path, suite)

    assert (run.outcome, run.denied) == ("passed", ["Write"])


async def test_a_session_that_fails_or_hangs_is_an_error_of_its_run_only(tmp_path: Path) -> None:
    script = """
[[turn]]
when = "fail"
error = { status = 400, type = "invalid_request_error", message = "no such thing" }
[[turn]]
when = "hang"
delay_ms = 60000
text = "Too late."
[[turn]]
text = "Done."
"""
    suite = HEAD + "".join(
        f'[[case]]\nname = "{word}"\nprompt = "{word}"\ntimeout_seconds = {seconds}\n'
        for word, seconds in (("fail", 60), ("hang", 0.5), ("work", 60))
    )
    found = {run.case: run for run in await evaluate(tmp_path, suite, script)}

    assert {name: run.outcome for name, run in found.items()} == {"fail": "error", "hang": "error", "work": "passed"}
    assert "no such thing" in found["fail"].error
    assert found["hang"].error == "the session did not end within 0.5 s (timeout_seconds of the case)"


async def test_no_run_starts_after_the_budget_and_a_resume_does_the_rest(tmp_path: Path) -> None:
    suite = "runs = 4\nconcurrency = 1\n" + HEAD + CASE
    first = await evaluate(tmp_path, suite, turns=4)
    assert [(run.run, run.outcome) for run in first] == [(1, "passed"), (2, "passed")]

    stopped = await evaluate(tmp_path, suite, turns=5)
    assert [(run.run, run.outcome) for run in stopped] == [(1, "passed"), (2, "passed"), (3, "stopped")]

    rest = await evaluate(tmp_path, suite)
    assert [(run.run, run.outcome) for run in rest] == [(number, "passed") for number in (1, 2, 3, 4)]
    assert rest[:2] == first


async def test_a_budget_in_dollars_ends_the_run_that_exceeds_it_and_starts_no_other(tmp_path: Path) -> None:
    costly = read_script('at_end = "repeat"\n[[turn]]\ntext = "Done."\nusage = { input_tokens = 500000 }\n', "a script")
    with running(costly) as server:
        suite = f'runs = 4\nconcurrency = 1\n[defaults]\nmodel = "sonnet"\nenv.ANTHROPIC_BASE_URL = "{server.url}"\n'
        found = await evaluate(tmp_path, suite + CASE, usd=2.0)

    assert [(run.run, run.outcome) for run in found] == [(1, "passed"), (2, "stopped")]
    assert found[0].cost_usd is not None
    assert 1 < found[0].cost_usd < 2


async def test_the_judge_decides_by_the_rubric_and_sees_what_the_agent_changed(tmp_path: Path) -> None:
    verdict = "[[turn]]\ntools = [{ name = 'StructuredOutput', input = { passed = false, reason = 'too short' } }]\n"
    (tmp_path / "judge.toml").write_text(verdict + DONE)
    suite = '[judge]\nmodel = "scripted:judge.toml"\n' + HEAD + CASE + 'expect.rubric = "It is long."\n'
    [run] = await evaluate(tmp_path, suite)
    assert (run.outcome, run.reasons) == ("failed", ["rubric: too short"])

    (tmp_path / "judge.toml").write_text("[[turn]]\nerror = { status = 400, message = 'no judge today' }\n")
    (tmp_path / "results").rename(tmp_path / "before")
    [run] = await evaluate(tmp_path, suite)
    assert run.outcome == "error"
    assert "no judge today" in run.checks[-1].detail


async def test_a_skill_and_a_prompt_are_evaluated_as_configurations(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "greet"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello to everybody.\n")
    script = "[[turn]]\ntools = [{ name = 'Skill', input = { skill = 'greet' } }]\n" + DONE
    suite = '[defaults]\nmodel = "scripted:script.toml"\n' + CASE + 'expect.tools = ["Skill"]\n'
    suite += '[[configuration]]\nname = "with"\nskills = ["skills/greet"]\nprompt_template = "Please: {prompt}"\n'
    suite += '[[configuration]]\nname = "without"\n'
    found = {run.configuration: run for run in await evaluate(tmp_path, suite, script)}

    wire = {name: (tmp_path / "results" / f"{run.recording}.wire.jsonl").read_text() for name, run in found.items()}
    assert "Say hello to everybody." in (tmp_path / "results" / f"{found['with'].recording}.model.jsonl").read_text()
    assert "Please: Go." in wire["with"]
    assert "Please: Go." not in wire["without"]
    assert "sk-a-secret" not in "".join(wire.values())


async def test_a_recording_has_no_secrets_of_the_settings(tmp_path: Path) -> None:
    settings = 'settings = { env = { SERVICE_TOKEN = "a-password-of-mine" } }\n'
    [run] = await evaluate(tmp_path, HEAD + settings + CASE, DONE)

    recording = tmp_path / "results" / f"{run.recording}.wire.jsonl"
    assert '"SERVICE_TOKEN' in recording.read_text().replace("\\", "")
    assert "a-password-of-mine" not in recording.read_text()
