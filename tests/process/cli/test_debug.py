"""`--debug`: events without their content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from parley.cli.debug import parse_categories

SECRET = "sk-ant-api03-not-a-key-of-anybody"
PROMPT = 'call Bash {"command": "echo a-private-word"}\nshow'
STREAM = ("-p", "--output-format", "stream-json", "--verbose", "--model", "offline", "--allowedTools", "Bash")


def test_a_file_of_its_own_reports_names_sizes_and_times_and_nothing_that_was_said(tmp_path: Path, run: Any) -> None:
    done = run(*STREAM, "--debug", "--", PROMPT, ANTHROPIC_API_KEY=SECRET)
    [path] = (tmp_path / "home" / ".claude" / "debug").iterdir()
    text = path.read_text()

    assert (done.returncode, done.stderr) == (0, "")
    assert path.stem in done.stdout  # the session's id
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[(wire|api|log)\] ", line) for line in text.splitlines())
    for words in ("[api] offline request: 1 messages", "[log] permission: Bash", "[wire] > result/success"):
        assert words in text
    assert "answered in" in text
    assert SECRET not in text
    assert "a-private-word" not in text


def test_a_file_may_be_named_and_categories_picked(tmp_path: Path, run: Any) -> None:
    run(*STREAM, "--debug-file", "notes/debug.txt", "--debug=api", "--", PROMPT)

    found = (tmp_path / "notes" / "debug.txt").read_text()
    assert {line.split()[1] for line in found.splitlines()} == {"[api]"}


def test_notes_go_to_stderr_where_that_is_wanted(run: Any) -> None:
    done = run("-p", "--model", "offline", "--debug-to-stderr", "--", "say Hi.")

    assert done.stdout == "Hi.\n"
    assert "[api] offline answered in" in done.stderr


def test_lines_of_a_stream_are_noted_in_both_directions(tmp_path: Path, run: Any) -> None:
    argv = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--model", "offline")
    prompt = '{"type":"user","message":{"role":"user","content":"say Hi."}}'
    ask = '{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}'
    run(*argv, "--debug-file", "debug.txt", "--debug", "wire", stdin=f"{ask}\n{prompt}\n{{}}\n")

    text = (tmp_path / "debug.txt").read_text()
    for words in (f"< control_request/initialize, {len(ask)} bytes", "> control_response", "< user, ", "< refused"):
        assert words in text


def test_a_failing_call_is_noted_with_its_status(tmp_path: Path, run: Any) -> None:
    run("-p", "--model", "offline", "--debug-file", "debug.txt", "--", "fail 400 no", CLAUDE_CODE_MAX_RETRIES="0")

    assert "failed after" in (tmp_path / "debug.txt").read_text()


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path, run: Any) -> None:
    (tmp_path / "folder").mkdir()
    done = run("-p", "--model", "offline", "--debug-file", "folder", "--", "say Hi.")

    assert (done.stdout, done.returncode) == ("", 1)
    assert "option '--debug-file': cannot write folder" in done.stderr


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("", {"wire", "api", "log", "warning"}),
        ("true", {"wire", "api", "log", "warning"}),
        ("api, log", {"api", "log"}),
        ("!wire", {"api", "log", "warning"}),
        ("api,!api", set()),
        ("hooks", set()),
        ("!hooks,!log", {"wire", "api", "warning"}),
    ],
)
def test_a_filter_names_categories_or_leaves_them_out(words: str, left: set[str]) -> None:
    assert parse_categories(words) == left
