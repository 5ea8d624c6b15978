"""Recordings and injected faults through the real executable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PROMPT = 'think I look.\ncall Bash {"command": "pwd; date; echo $MY_TOKEN"}\nshow'
FREE = ("--print", "--permission-mode", "bypassPermissions", "--output-format", "stream-json", "--verbose")


def told(done: Any) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def result(done: Any) -> Any:
    (last,) = [line for line in told(done) if line["type"] == "result"]
    return last


def test_a_run_is_recorded_and_played_again_with_the_same_answers(run: Any, tmp_path: Path) -> None:
    live = run(*FREE, "--model", "offline", "--record", "tape.jsonl", PROMPT, IS_SANDBOX="1", MY_TOKEN="a-real-secret")
    again = run(*FREE, "--model", "replay:tape.jsonl", PROMPT, IS_SANDBOX="1", MY_TOKEN="a-real-secret")
    third = run(*FREE, "--model", "replay:tape.jsonl", PROMPT, IS_SANDBOX="1", MY_TOKEN="a-real-secret")

    def said(done: Any) -> list[Any]:
        return [line["message"]["content"] for line in told(done) if line["type"] == "assistant"]

    assert (live.returncode, again.returncode, again.stderr) == (0, 0, "")
    assert "a-real-secret" in result(live)["result"]
    assert "a-real-secret" not in (tmp_path / "tape.jsonl").read_text()
    assert result(again)["result"] == result(live)["result"].replace("a-real-secret", "[redacted]")
    assert said(again) == said(third)
    assert result(again)["total_cost_usd"] == 0


def test_a_recording_of_another_conversation_fails_the_turn_before_any_tool_runs(run: Any) -> None:
    run("--print", "--model", "offline", "--record", "tape.jsonl", "say Hi")
    done = run(*FREE, "--model", "replay:tape.jsonl", "say Ho", IS_SANDBOX="1")

    assert done.returncode == 1
    assert result(done)["is_error"]
    assert (
        "does not match this conversation: messages[0].content[0].text is 'say Hi' in the recording"
        in result(done)["result"]
    )
    assert not [line for line in told(done) if line["type"] == "system" and line["subtype"] == "api_retry"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--model", "replay:none.jsonl"), "none.jsonl: No such file or directory"),
        (("--model", "replay:notes.txt"), "notes.txt is not a recording of a model: its first line is not a header"),
        (("--model", "offline", "--record", "notes.txt"), "notes.txt already exists; recordings are not overwritten"),
        (("--model", "offline", "--record", "no/where"), "no/where: No such file or directory"),
        (("--model", "offline", "--fault", "earthquake"), "option '--fault': unknown fault 'earthquake'"),
    ],
)
def test_an_impossible_value_is_reported_in_one_sentence_before_anything_starts(
    run: Any, tmp_path: Path, argv: tuple[str, ...], said: str
) -> None:
    (tmp_path / "notes.txt").write_text("notes\n")
    done = run("--print", *argv, "say Hi")

    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert said in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "notes\n"


def test_a_session_that_cannot_be_opened_leaves_no_recording(run: Any, tmp_path: Path) -> None:
    run(
        "--print",
        "--model",
        "offline",
        "--record",
        "tape.jsonl",
        "--resume",
        "0" * 8 + "-0000-4000-8000-" + "0" * 12,
        "x",
    )

    assert not (tmp_path / "tape.jsonl").exists()


def test_a_fault_strikes_any_model_and_its_retry_is_reported(run: Any) -> None:
    done = run(*FREE, "--model", "offline", "--fault", "rate-limit-wait=0,reset=0@2", "say Hi", IS_SANDBOX="1")
    retries = [line for line in told(done) if line.get("subtype") == "api_retry"]

    assert [retry["error_status"] for retry in retries] == [429, None]
    assert (result(done)["is_error"], result(done)["result"]) == (False, "Hi")


def test_the_recording_of_a_run_with_faults_has_what_the_engine_saw(run: Any) -> None:
    run("--print", "--model", "offline", "--fault", "overloaded", "--record", "tape.jsonl", "say Hi")
    done = run(*FREE, "--model", "replay:tape.jsonl", "say Hi", IS_SANDBOX="1")

    assert [line["error_status"] for line in told(done) if line.get("subtype") == "api_retry"] == [529]
    assert result(done)["result"] == "Hi"
