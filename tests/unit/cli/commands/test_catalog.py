"""The table of subcommands, and what is made from it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from parley.cli.commands.catalog import BY_NAME, COMMANDS, Action, Command, Flag
from parley.cli.commands.completion import complete
from parley.cli.commands.help import format_action, format_command, format_page
from parley.cli.commands.subcommand import GivenArgs, find_handler, run_command, run_subcommand, usage_line
from parley.cli.main import REFUSED, SUBCOMMANDS
from parley.errors import InvalidArguments, UsageError
from parley.protocol.options import BY_FLAG, ROWS

TOY = Command(
    name="toy",
    help="Play.",
    actions={
        "play": Action(
            "Play a game.",
            "GAME [PLACE]",
            (Flag("-n --name", "A name.", "NAME"), Flag("--loud", "Loudly."), Flag("--size", "", "", ("big", "small"))),
        ),
        "many": Action("Play several.", "GAME ...", (Flag("-e --env", "", "KEY=VALUE", more="[A-Z]="),)),
        "session": Action("Play in a session.", "GAME", (Flag("--json", "Print JSON."),), takes_options=True),
    },
)


def parse(*argv: str) -> GivenArgs:
    found: list[GivenArgs] = []

    def keep(given: GivenArgs) -> int:
        found.append(given)
        return 0

    assert run_command(TOY, argv, keep) == 0
    return found[0]


def test_every_subcommand_is_declared_and_every_action_has_a_function() -> None:
    assert BY_NAME.keys() == SUBCOMMANDS
    for command in COMMANDS.values():
        assert all(callable(find_handler(action)) for action in command.actions.values())
    assert not BY_NAME.keys() & REFUSED.keys()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_help_texts_are_sentences_and_shown(command: Command) -> None:
    whole = " ".join(format_command(command).split())
    for name, action in command.actions.items():
        text = " ".join(format_action(command, name).split())
        assert action.help[0].isupper()
        assert " ".join(action.help.split()) in text
        assert f"parley {command.name} {name}".rstrip() in text
        assert command.single or f" {name} {action.arguments}".rstrip() in whole
        for flag in action.flags:
            assert flag.help.endswith(".")
            assert flag.help in text
            assert flag.help in whole
    assert command.help.endswith(".")


def test_arguments_and_flags_are_split() -> None:
    given = parse("play", "chess", "-n", "Ada", "--loud", "--size=big", "here")

    assert given.words == ("chess", "here")
    assert (given.one("name"), given.has("loud"), given.one("size"), given.has("env")) == ("Ada", True, "big", False)
    assert parse("play", "--", "--loud").words == ("--loud",)
    assert parse("--loud", "play", "chess") == parse("play", "--loud", "chess")
    assert parse("--model", "opus", "session", "chess").options.model == "opus"
    assert parse("many", "a", "b", "c").words == ("a", "b", "c")
    assert parse("many", "-e", "A=1", "B=2", "chess", "--env=C=3").all("env") == ["A=1", "B=2", "C=3"]


def test_the_options_of_a_session_are_parsed_where_they_are_taken() -> None:
    given = parse(
        "session",
        "--model",
        "opus",
        "--json",
        "chess",
        "--",
    )

    assert (given.words, given.options.model, given.has("json")) == (("chess",), "opus", True)
    assert parse("session", "--", "--json").words == ("--json",)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("play",), "missing argument GAME"),
        (("play", "a", "b", "c"), "unexpected argument 'c'; quote an argument that contains spaces"),
        (("play", "a", "--lod"), "unknown option '--lod' (did you mean --loud?)"),
        (("play", "a", "--loud=1"), "option '--loud' takes no value, got '1'"),
        (("play", "a", "-n"), "option '-n' needs a value"),
        (("play", "a", "--size", "huge"), "invalid size 'huge' (choose from big, small)"),
        (("session", "a", "--jsn"), "unknown option '--jsn' (did you mean --json?)"),
        (("session", "a", "--modle", "x"), "unknown option '--modle' (did you mean --model?)"),
        (("session", "a", "--max-turns", "x"), "option '--max-turns' needs a whole number"),
    ],
)
def test_wrong_usage_is_an_error_with_a_line_of_usage(argv: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        parse(*argv)

    first, usage = str(raised.value).splitlines()
    assert first.startswith(reason)
    assert usage == f"Usage: {usage_line(TOY, argv[0])}"
    assert raised.value.exit_code == 2


def test_a_command_that_claude_code_has_too_exits_with_its_code() -> None:
    with pytest.raises(UsageError) as raised:
        run_subcommand("mcp", ["get"])

    assert raised.value.exit_code == 1


def values(*words: str) -> list[str]:
    return [line.partition("\t")[0] for line in complete(words)]


def test_completion_knows_commands_actions_flags_and_values() -> None:
    assert values("ses") == ["sessions"]
    assert values("") == list(COMMANDS)
    assert values("sessions", "re") == ["rename", "repair"]
    assert values("sessions", "list", "--of") == ["--offset", "--offline"]
    assert values("--output-format", "s") == ["stream-json"]
    assert values("--output-format=s") == ["--output-format=stream-json"]
    assert values("mcp", "add", "-s", "") == ["local", "user", "project"]
    assert values("--allowedTools", "Read", "Gl") == ["Glob"]
    assert values("--settings", "x") == [":files"]
    assert values("--add-dir", "x") == [":dirs"]
    assert values("--memory", "o") == ["on", "off", ":files"]
    assert values("sessions", "export", "abc", "x") == [":files"]
    assert values("sessions", "export", "--json", "abc", "x", "y") == []
    assert values("doctor", "--") == ["--json", "--help"]
    assert values("plugins", "li") == ["list"]
    assert values("help", "sessions", "sh") == ["show"]
    assert values("link", "") == ["claude", "miriad-code"]
    assert values("link", "claude", "") == [":dirs"]
    assert values("models", "--check", "so") == values("models", "opus", "so") == values("--model", "so") == ["sonnet"]
    assert values("mcp", "add", "name", "s") == []
    assert values("--resume", "--mod") == values("--allowedTools", "Read", "--mod") == ["--model"]
    assert values("a prompt", "--mod") == ["--model"]
    assert values("sessions", "nonsense", "x") == []
    assert values() == list(COMMANDS)


def test_completion_offers_every_flag_with_its_sentence() -> None:
    lines = set(complete(["-"]))

    assert {f"{flag}\t{row.help}" for row in ROWS for flag in row.flags if flag != "--help"} <= lines
    assert len(lines) == len(BY_FLAG)


def test_the_manual_page_has_every_flag_and_command() -> None:
    page = "\n".join(format_page())

    for row in ROWS:
        assert row.flags[0].replace("-", "\\-") in page
    for command in COMMANDS.values():
        assert f"\nparley {command.name}:\n".replace("-", "\\-") in page
    assert not [line for line in page.splitlines() if len(line) > 200]


@pytest.mark.parametrize(
    "checker",
    [["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-Tutf8", "-z"]],
    ids=lambda argv: argv[0],
)
def test_the_manual_page_is_valid(checker: list[str]) -> None:
    if shutil.which(checker[0]) is None:
        pytest.skip(f"{checker[0]} is not installed (Debian: apt install {checker[0]})")
    page = "\n".join(format_page())
    done = subprocess.run(checker, input=page, capture_output=True, text=True, timeout=60, check=False)

    # The page has no date: it changes with the version.
    assert [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line] == []
