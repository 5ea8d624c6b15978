"""Completion in the real shells. A shell that is not installed is skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.tty import Terminal
from tests.process.cli.conftest import PARLEY

ID = "11111111-1111-4111-8111-111111111111"
LINES = [
    ("parley ses", ["sessions"]),
    ("parley sessions show 1", [ID[:8]]),
    ("parley --output-format stream", ["stream-json"]),
    ("parley --permission-mod", ["--permission-mode"]),
    ("parley --settings notes", ["notes.txt"]),
    ("parley --add-dir fold", ["folder/"]),
]


def need(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed (Debian: apt install {shell})")
    return path


@pytest.fixture
def shell_environment(run: Any, tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """A directory with a session, a file and a folder, and `parley` on the PATH."""
    run("-p", "--model", "offline", "--session-id", ID, "--name", "A title", "say Hi.")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "folder").mkdir()
    return {**environment, "PATH": f"{Path(PARLEY).parent}:{environment['PATH']}", "TERM": "xterm"}


def run_shell(shell: str, program: str, environment: dict[str, str], folder: Path) -> list[str]:
    done = subprocess.run(
        [need(shell), "-c", program],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(("line", "completions"), LINES, ids=[line for line, _ in LINES])
def test_bash_completes(tmp_path: Path, shell_environment: dict[str, str], line: str, completions: list[str]) -> None:
    program = (
        "source <(parley completion bash)\n"
        f'COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _parley; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    found = run_shell("bash", program, shell_environment, tmp_path)

    assert found == [name.rstrip("/") for name in completions]  # bash itself appends the slash


def test_bash_completes_after_an_equals_sign(tmp_path: Path, shell_environment: dict[str, str]) -> None:
    program = (
        "source <(parley completion bash)\n"
        'COMP_WORDS=(parley --input-format =); COMP_CWORD=2; _parley; echo "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(parley --input-format = s); COMP_CWORD=3; _parley; echo "${COMPREPLY[@]}"'
    )
    assert run_shell("bash", program, shell_environment, tmp_path) == ["text stream-json", "stream-json"]


def test_bash_completes_at_a_prompt(tmp_path: Path, shell_environment: dict[str, str]) -> None:
    with Terminal([need("bash"), "--norc", "-i"], shell_environment, tmp_path) as terminal:
        terminal.send("source <(parley completion bash); echo rea''dy\r")
        terminal.read_until("ready\n")
        terminal.send("parley sess\tsh\t1\t")
        terminal.read_until(f"parley sessions show {ID[:8]}")


@pytest.mark.parametrize(("typed", "shown"), [("A", r"A\ title "), (r"A\ t", r"A\ title "), ('"A t', '"A title"')])
def test_bash_completes_a_title_with_its_quotes(
    tmp_path: Path, shell_environment: dict[str, str], typed: str, shown: str
) -> None:
    with Terminal([need("bash"), "--norc", "-i"], shell_environment, tmp_path) as terminal:
        terminal.send("source <(parley completion bash); echo rea''dy\r")
        terminal.read_until("ready\n")
        terminal.send(f"parley sessions show {typed}\t")
        terminal.read_until(f"parley sessions show {shown}")


@pytest.mark.parametrize(("line", "completions"), LINES, ids=[line for line, _ in LINES])
def test_fish_completes(tmp_path: Path, shell_environment: dict[str, str], line: str, completions: list[str]) -> None:
    found = run_shell("fish", f"parley completion fish | source; complete -C '{line}'", shell_environment, tmp_path)

    assert [row.partition("\t")[0] for row in found] == completions


def test_fish_shows_titles(tmp_path: Path, shell_environment: dict[str, str]) -> None:
    program = "parley completion fish | source; complete -C 'parley attach '"
    assert run_shell("fish", program, shell_environment, tmp_path) == [f"{ID[:8]}\tA title", f"A title\t{ID[:8]}"]


@pytest.mark.parametrize(("line", "completions"), LINES, ids=[line for line, _ in LINES])
def test_zsh_completes_at_a_prompt(
    tmp_path: Path, shell_environment: dict[str, str], line: str, completions: list[str]
) -> None:
    program = "autoload -Uz compinit; compinit -u -D; source <(parley completion zsh); echo rea''dy\r"
    with Terminal([need("zsh"), "-f", "-i"], shell_environment, tmp_path) as terminal:
        terminal.send(program)
        terminal.read_until("\nready")
        terminal.send(f"{line}\t")
        # The rest of the word appears after what was typed, among escape sequences of the line editor.
        terminal.read_until(completions[0].rstrip("/")[len(line.rpartition(" ")[2]) :])
        terminal.send("\x15echo do''ne\r")
        terminal.read_until("\ndone")


def test_a_session_is_completed_by_the_start_of_its_title(
    run: Any, tmp_path: Path, shell_environment: dict[str, str]
) -> None:
    assert run("completion", "words", "--", "sessions", "show", "A\\ ti").stdout == f"A title\t{ID[:8]}\n"


def test_an_unknown_shell_is_refused(run: Any) -> None:
    done = run("completion", "fsh")

    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean fish?" in done.stderr
