"""What a person at a terminal sees: colours, mistyped commands, questions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.tty import run_at_terminal, show_in_tmux
from tests.process.cli.conftest import PARLEY

ID = "11111111-1111-4111-8111-111111111111"
ESCAPE = "\x1b["
OFFLINE = {"ANTHROPIC_MODEL": "offline"}


def strip(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["sesions", "list"], "sessions"),
        (["doctr"], "doctor"),
        (["session"], "sessions"),
        (["modles", "--json"], "models"),
        (["hlep"], "help"),
        (["mpc", "list"], "mcp"),
        (["model-sever"], "model-server"),
        (["permisions", "check", "Bash"], "permissions"),
    ],
)
def test_a_mistyped_subcommand_is_an_error_that_sends_nothing_and_leaves_no_session(
    tmp_path: Path, environment: dict[str, str], argv: list[str], meant: str
) -> None:
    said, code = run_at_terminal([PARLEY, *argv], environment | OFFLINE, tmp_path)

    assert code == 2
    assert said.startswith(
        f"Error: unknown command `{argv[0]}` (did you mean {meant}?); to send it as a prompt: parley -p"
    )
    assert not (tmp_path / "home" / ".claude").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["hello"],
        ["fix the bug"],
        ["lint"],
        ["unit", "tests"],
        ["Doctr"],
        ["sesions are broken"],
        ["-p", "doctr"],
        ["doctr", "--print"],
        ["--", "doctr"],
        ["réponds"],
    ],
)
def test_what_is_plausibly_a_prompt_stays_one(tmp_path: Path, environment: dict[str, str], argv: list[str]) -> None:
    said, code = run_at_terminal([PARLEY, *argv], environment | OFFLINE, tmp_path)

    words = " ".join(word for word in argv if not word.startswith("-"))
    assert (code, f"You said: {words}" in strip(said)) == (0, True), said


def test_a_mistyped_subcommand_is_an_error_without_a_terminal_unless_print_says_that_it_is_a_prompt(run: Any) -> None:
    refused = run("docter", **OFFLINE)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "unknown command `docter` (did you mean doctor?)" in refused.stderr
    assert "You said: docter" in run("-p", "docter", **OFFLINE).stdout
    assert "You said: docter" in run("docter", "--output-format", "text", **OFFLINE).stdout


def test_without_a_prompt_the_error_says_what_to_write(tmp_path: Path, environment: dict[str, str]) -> None:
    # With a piped output nobody can be asked.
    said, _ = run_at_terminal(["sh", "-c", f"{PARLEY} | cat"], environment, tmp_path)

    assert said.startswith("Error: no prompt given. Give the prompt as an argument")
    assert "--print" not in said


def test_an_unknown_option_is_an_error_at_a_terminal(tmp_path: Path, environment: dict[str, str]) -> None:
    said, code = run_at_terminal([PARLEY, "--modle", "haiku", "x"], environment | OFFLINE, tmp_path)

    assert (code, said.startswith("Error: unknown option '--modle' (did you mean --model?)")) == (2, True)


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals_that_can_show_them(
    tmp_path: Path, environment: dict[str, str], variables: dict[str, str], is_coloured: bool
) -> None:
    said, _ = run_at_terminal([PARLEY, "--help"], environment | variables, tmp_path)

    assert (ESCAPE in said) == is_coloured


@pytest.mark.parametrize("argv", [("--help",), ("doctor",), ("models",), ("help", "sessions"), ("sessions", "list")])
def test_piped_output_has_no_escape_sequences_unless_they_are_forced(run: Any, argv: tuple[str, ...]) -> None:
    run("-p", "--model", "offline", "say Hi.")
    assert ESCAPE not in run(*argv).stdout
    forced = run(*argv, FORCE_COLOR="1").stdout
    assert strip(forced) == run(*argv).stdout
    assert (ESCAPE in forced) == (argv != ("sessions", "list"))


@pytest.mark.parametrize(("answer", "deletes"), [("y\r", True), ("\r", False), ("n\r", False), ("\x04", False)])
def test_a_person_is_asked_before_a_session_is_deleted(
    run: Any, tmp_path: Path, environment: dict[str, str], answer: str, deletes: bool
) -> None:
    run("-p", "--model", "offline", "--session-id", ID, "say Hi.")

    said, code = run_at_terminal([PARLEY, "sessions", "delete", "1111"], environment, tmp_path, answer)

    assert f"Delete session {ID} (say Hi.)? [y/N]" in said
    assert (f"Deleted session {ID}" in said, code) == (deletes, 0 if deletes else 1)
    assert (run("sessions", "list").stdout == "") == deletes


def test_with_yes_a_person_is_not_asked(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    run("-p", "--model", "offline", "--session-id", ID, "say Hi.")

    assert run_at_terminal([PARLEY, "sessions", "delete", "-y", ID], environment, tmp_path) == (
        f"Deleted session {ID}\n",
        0,
    )


# In a window of tmux.


def test_the_help_fits_into_a_narrow_window(tmp_path: Path, environment: dict[str, str]) -> None:
    shown = show_in_tmux(f"{PARLEY} --help", environment, tmp_path, columns=70, rows=600)
    lines = strip(shown).splitlines()

    assert lines[0] == "Usage: parley [options] [prompt]"
    assert lines[-1] == "exit code 0"
    assert "\x1b[1mCommands\x1b[0m" in shown.replace("\x1b[m", "\x1b[0m")
    assert "  --permission-mode" in "\n".join(lines)
    wrapped = [line for line in lines if line.startswith(" " * 30)]
    assert max(map(len, wrapped)) <= 70


def test_the_doctor_marks_what_is_wrong(tmp_path: Path, environment: dict[str, str]) -> None:
    shown = show_in_tmux(f"{PARLEY} doctor", environment, tmp_path, columns=200)

    assert re.search(r"\x1b\[32m✔\x1b\[(0;)?1?m? ?", shown)
    assert re.search(r"\x1b\[31m✘", shown)
    assert "✘ model: claude-opus-5-5 (anthropic): No API key" in strip(shown)
    assert strip(shown).endswith("exit code 1")


def test_the_list_of_sessions_is_a_table_with_short_ids(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    run("-p", "--model", "offline", "--session-id", ID, f"say {'long ' * 40}")
    header, row, end = strip(show_in_tmux(f"{PARLEY} sessions list", environment, tmp_path, columns=60)).splitlines()

    assert header.split() == ["ID", "MODIFIED", "SIZE", "TITLE"]
    assert row.startswith("11111111  just now  ")
    assert (len(row), row[-1]) == (60, "…")
    assert end == "exit code 0"


def test_a_mistyped_subcommand_in_a_window(tmp_path: Path, environment: dict[str, str]) -> None:
    shown = show_in_tmux(f"{PARLEY} sesions list", environment, tmp_path, columns=200)

    assert strip(shown).splitlines() == [
        "Error: unknown command `sesions` (did you mean sessions?); to send it as a prompt: parley -p 'sesions list'",
        "exit code 2",
    ]


HOSTILE = [
    "\\u001b]52;c;Zm9v\\u0007",
    "\\u001b]0;title\\u0007",
    "\\u001b[2J",
    "\\u009b31m",
    "\\u202e",
    "a\\rb",
    "\\u0008",
]


@pytest.mark.parametrize("sequence", HOSTILE)
def test_control_sequences_of_a_model_do_not_act_on_a_terminal(
    tmp_path: Path, environment: dict[str, str], run: Any, sequence: str
) -> None:
    script = tmp_path / "script.toml"
    script.write_text(f'[[turn]]\ntext = "One.{sequence}Two."\n')
    argv = ["-p", "--model", f"scripted:{script}", "x"]

    shown, code = run_at_terminal([PARLEY, *argv], environment, tmp_path)

    assert code == 0
    assert re.fullmatch(r"One\.[\x20-\x7e]+Two\.\r*\n", shown), shown
    assert run(*argv).stdout == f"One.{sequence.encode().decode('unicode_escape')}Two.\n"


def test_control_sequences_in_messages_do_not_act_on_a_terminal(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"\\u001b]0;title\\u0007": 1, "x\\u009b2J": []}')
    argv = ["--permission-mode", "plan\x1b]0;title\x07", "-p", "--model", "offline", "say Hi."]

    for words in (argv, argv[2:], ["permissions", "check", "Bash", "ls \x1b]0;t\x07"], ["mcp", "get", "\x1b[2J"]):
        shown, _ = run_at_terminal([PARLEY, *words], environment | {"NO_COLOR": "1"}, tmp_path)
        assert "\x1b" not in shown
        assert "\x9b" not in shown
        assert "\x07" not in shown
