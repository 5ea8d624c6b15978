"""Which first words are subcommands, through the real executable: those we have, and those we refuse."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley.cli.main import REFUSED, SUBCOMMANDS
from tests.helpers.patience import PATIENCE_SECONDS
from tests.process.cli.conftest import PARLEY

ACTIONS = (
    "auth",
    "auto-mode",
    "completion",
    "config",
    "mcp",
    "memory",
    "permissions",
    "plugin",
    "plugins",
    "project",
    "sessions",
)
OFFLINE = {"ANTHROPIC_MODEL": "offline"}


@pytest.mark.parametrize("word", sorted(REFUSED))
def test_a_subcommand_that_parley_does_not_have_is_refused_and_never_a_prompt(run: Any, word: str) -> None:
    for argv in ((word,), (word, "--json"), (word, "x", "y")):
        done = run(*argv, **OFFLINE)

        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Error: the command `{word}` is not available: ")
        assert done.stderr.count("\n") == 1


def test_a_prompt_that_only_begins_with_such_a_word_is_a_prompt(run: Any) -> None:
    for prompt in ("stop using tabs in main.c", "mcp list", "doctor!", "Stop"):
        assert f"You said: {prompt}" in run(prompt, **OFFLINE).stdout
    assert "You said: stop" in run("-p", "stop", **OFFLINE).stdout
    assert "You said: doctor" in run("--print", "doctor", **OFFLINE).stdout


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("mcpp", "list"), "mcp"), (("conformance",), "conform"), (("configure",), "config"), (("evals", "x"), "eval")],
)
def test_a_mistyped_subcommand_is_refused_if_the_words_after_it_fit(
    run: Any, words: tuple[str, ...], meant: str
) -> None:
    done = run(*words, **OFFLINE)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: unknown command `{words[0]}` (did you mean {meant}?); to send it as")


@pytest.mark.parametrize("words", [("explain this",), ("mcpp", "server", "fails"), ("map", "list", "x"), ("explain",)])
def test_words_that_no_subcommand_fits_are_a_prompt(run: Any, words: tuple[str, ...]) -> None:
    assert f"You said: {' '.join(words)}" in run(*words, **OFFLINE).stdout


@pytest.mark.parametrize("word", sorted(SUBCOMMANDS))
def test_every_subcommand_has_help(run: Any, word: str) -> None:
    done = run(word, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: parley ")


@pytest.mark.parametrize("word", ACTIONS)
def test_a_subcommand_with_actions_prints_its_help_without_one(run: Any, word: str) -> None:
    done = run(word)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(word, "--help").stdout


@pytest.mark.parametrize(
    ("argv", "nearest"),
    [
        (("auth", "sttaus"), "did you mean status?"),
        (("config", "lst"), "did you mean list?"),
        (("mcp", "lits"), "did you mean list?"),
        (("mcp", "ad"), "did you mean add?"),
        (("memory", "serch"), "did you mean search?"),
        (("memory", "burn"), "(choose from list, show"),
        (("plugin", "instal"), "did you mean install?"),
        (("sessions", "exprt"), "did you mean export?"),
        (("sessions", "what"), "(choose from list, show"),
    ],
)
def test_an_unknown_action_is_refused_with_the_nearest_one(run: Any, argv: tuple[str, ...], nearest: str) -> None:
    done = run(*argv, **OFFLINE)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: unknown command `parley {' '.join(argv)}`")
    assert nearest in done.stderr


@pytest.mark.parametrize(
    "argv",
    [
        ("auth", "login"),
        ("auto-mode", "critique"),
        ("mcp", "login", "x"),
        ("mcp", "add-from-claude-desktop"),
        ("plugin", "configure", "x"),
        ("plugins", "eval"),
    ],
)
def test_an_action_of_claude_code_that_parley_does_not_have_is_refused(run: Any, argv: tuple[str, ...]) -> None:
    done = run(*argv, **OFFLINE)

    assert (done.returncode, done.stdout) == (2, "")
    assert "is not available: " in done.stderr


@pytest.mark.parametrize("words", [("sessions",), ("sessions", "list"), ("plugins",), ("doctor",), ("mcp", "add")])
def test_help_of_a_command_is_the_same_in_all_ways(run: Any, words: tuple[str, ...]) -> None:
    asked = run("help", *words)

    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == run(*words, "--help").stdout == run(*words, "-h").stdout


@pytest.mark.parametrize("command", ["serve", "console"])
def test_an_option_for_a_port_is_refused_with_the_one_for_an_address(run: Any, command: str) -> None:
    done = run(command, "--port", "8080")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: unknown option '--port' (did you mean --listen HOST:PORT?); put --")


def test_settings_that_are_not_there_are_reported(run: Any) -> None:
    done = run("config", "list")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no settings are in effect here\n")
    assert run("config", "list", "--json").stdout == "{}\n"


def test_help_alone_is_the_help_of_parley(run: Any) -> None:
    assert run("help").stdout == run("--help").stdout == run("-h").stdout
    assert "\n  attach  " in run("help").stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("sesions",), "unknown command `sesions` (did you mean sessions?)"),
        (("sessions", "lst"), "unknown command `parley sessions lst` (did you mean list?)"),
        (("me", "to", "write"), "unexpected argument 'write'"),
    ],
)
def test_help_of_something_unknown_is_refused(run: Any, words: tuple[str, ...], reason: str) -> None:
    done = run("help", *words, **OFFLINE)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {reason}")


def test_the_miriad_server_has_its_own_help(tmp_path: Path, environment: dict[str, str]) -> None:
    for flag in ("--help", "-h"):
        done = subprocess.run(
            [f"{PARLEY}-miriad", flag],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: parley-miriad --db FILE [options]\n")


def test_the_manual_page_is_printed(run: Any) -> None:
    done = run("man")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(".TH PARLEY 1 ")


def test_the_version_says_what_clients_look_for(run: Any) -> None:
    text = run("--version").stdout
    assert text.startswith("2.1.")
    assert "Claude Code" in text
    assert "Parley" in text
