"""`parley "prompt"` at a terminal: on a pseudo-terminal, read by an emulator."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import paths
from tests.helpers.forked import PARLEY
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.terminal import TerminalHarness, make_environment

TOUCH = 'call Bash {"command": "touch made.txt"}\nsay All **done**.'
ASKED = "esc ends the turn\n"
OFFLINE = ("--model", "offline")
SUMMARY = r"\d+ model calls? · .*\$0 · .* s · parley -c resumes [0-9a-f]{8}$"
HOSTILE = re.compile(rb"\x1b\](?!8)|\x07|\x9b|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")


def write_script(folder: Path, text: str) -> tuple[str, str]:
    (folder / "script.toml").write_text(text)
    return "--model", "scripted:script.toml"


def body(terminal: TerminalHarness) -> list[str]:
    """The lines above the summary."""
    *lines, summary = terminal.emulator.lines
    assert re.search(SUMMARY, summary), summary
    return lines


def test_an_answer_is_formatted_and_the_run_summarized(tmp_path: Path) -> None:
    script = write_script(
        tmp_path, '[[turn]]\ntext = "# Title\\n\\nSome **bold** text.\\n\\n- a\\n- b\\n"\nchunk_chars = 2'
    )
    with TerminalHarness(tmp_path, *script, "go") as terminal:
        assert terminal.wait() == 0

    assert body(terminal) == ["Title", "", "Some bold text.", "", " • a", " • b", ""]
    assert b"\x1b[1mbold\x1b[0m" in terminal.written


def test_a_finished_paragraph_is_on_the_screen_while_the_next_arrives(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        f'[[turn]]\ntext = "First paragraph.\\n\\nSecond one goes on{" and on" * 100}."\n'
        "chunk_chars = 4\nevent_delay_ms = 150",
    )
    with TerminalHarness(tmp_path, *script, "go") as terminal:
        terminal.wait_for("First par")
        terminal.wait_for("Second one")
        assert "Answering…" in terminal.emulator.text
        assert "on and on." not in terminal.emulator.text
        terminal.signal(signal.SIGINT)
        terminal.wait()


def test_a_long_answer_scrolls_away_and_every_line_is_there_once(tmp_path: Path) -> None:
    paragraphs = [f"Paragraph {number} has some words and ends." for number in range(40)]
    code = [f"line_{number}()" for number in range(40)]
    text = "\\n\\n".join(paragraphs) + "\\n\\n```py\\n" + "\\n".join(code) + "\\n```\\n"
    script = write_script(tmp_path, f'[[turn]]\ntext = "{text}"\nchunk_chars = 7')
    with TerminalHarness(tmp_path, *script, "go", rows=10) as terminal:
        assert terminal.wait() == 0

    shown = [line for line in body(terminal) if line]
    assert shown == [*paragraphs, "```py", *code, "```"]


@pytest.mark.parametrize(
    ("key", "rules", "asks_again"), [("y", [], True), ("l", ["Bash(touch made.txt)"], True), ("e", [], False)]
)
def test_a_call_that_is_allowed_runs(tmp_path: Path, key: str, rules: list[str], asks_again: bool) -> None:
    prompt = TOUCH.replace(
        "\n", '\ncall Bash {"command": "touch made.txt"}\ncall Bash {"command": "touch other.txt"}\n'
    )
    with TerminalHarness(tmp_path, *OFFLINE, prompt, rows=50) as terminal:
        terminal.wait_for(ASKED)
        assert "? Run this command?\n    touch made.txt\n  why: it writes a file, " in terminal.emulator.text
        assert "  l Yes, always here          allow Bash(touch made.txt)\n" in terminal.emulator.text
        assert (
            "  e Yes, and change the mode  permission mode acceptEdits – for this session\n" in terminal.emulator.text
        )
        terminal.type(key)
        if key == "y":
            terminal.wait_for("made.txt · ok")
            terminal.wait_for(ASKED)
            terminal.type("y")
        if asks_again:
            terminal.wait_for("? Run this command?\n    touch other.txt")
            terminal.wait_for(ASKED)
            terminal.type("y")
        assert terminal.wait() == 0

    assert (tmp_path / "made.txt").exists()
    assert (tmp_path / "other.txt").exists()
    assert terminal.emulator.text.count("? Run this command?") == {"y": 3, "l": 2, "e": 1}[key]
    assert body(terminal)[-2:] == ["All done.", ""]
    settings = tmp_path / ".claude/settings.local.json"
    assert (json.loads(settings.read_text())["permissions"]["allow"] if settings.exists() else []) == rules


def test_one_key_allows_edits_outside_of_the_working_directory(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    work.mkdir()
    calls = [f'call Write {{"file_path": "{outside}/{name}", "content": "x"}}\n' for name in "ab"]
    with TerminalHarness(work, *OFFLINE, "".join(calls) + "say Done.", rows=50) as terminal:
        terminal.wait_for(ASKED)
        assert "  grants: " in terminal.emulator.text
        assert "permission mode acceptEdits" in terminal.emulator.text
        terminal.type("s")
        assert terminal.wait() == 0

    assert sorted(path.name for path in outside.iterdir()) == ["a", "b"]


def test_a_call_that_is_denied_does_not_run_and_the_model_gets_the_reason(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, TOUCH.replace("say All **done**.", "show")) as terminal:
        terminal.wait_for(ASKED)
        terminal.type("r")
        terminal.wait_for("Why not?")
        terminal.type("not t\x7fnow\n")
        assert terminal.wait() == 0

    assert not (tmp_path / "made.txt").exists()
    assert "→ No: not now" in terminal.emulator.text
    assert "⊘ Running touch made.txt · denied" in terminal.emulator.text
    assert body(terminal)[-2] == "The user denied this call. Their reason: not now"


@pytest.mark.parametrize("key", ["\x03", "\x1b"])
def test_a_key_interrupts_at_a_question(tmp_path: Path, key: str) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, TOUCH) as terminal:
        terminal.wait_for(ASKED)
        terminal.type(key)
        assert terminal.wait() == 130
        assert terminal.current_modes == terminal.modes

    assert body(terminal)[-4:] == ["⊘ Running touch made.txt · interrupted", "", "Interrupted.", ""]
    assert not (tmp_path / "made.txt").exists()


def test_keys_that_were_pressed_before_the_question_do_not_answer_it(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, f"wait 1\n{TOUCH}") as terminal:
        terminal.wait_for("Waiting for the model")
        terminal.type("yyy\n")
        terminal.wait_for(ASKED)
        terminal.type("\x1b[200~y\n\x1b[201~")  # nor does a paste
        terminal.type("n")
        terminal.wait()

    assert not (tmp_path / "made.txt").exists()


def test_a_value_that_is_long_is_cut_until_it_is_asked_for(tmp_path: Path) -> None:
    content = "\\n".join(f"row {number}" for number in range(40))
    prompt = f'call Write {{"file_path": "{tmp_path}/big.txt", "content": "{content}"}}'
    with TerminalHarness(tmp_path, *OFFLINE, prompt, rows=60) as terminal:
        terminal.wait_for("… 11 more lines")
        assert "row 30" not in terminal.emulator.text
        terminal.wait_for("v View everything")
        terminal.type("v")
        terminal.wait_for("row 39")
        terminal.wait_for(ASKED)
        terminal.type("y")
        assert terminal.wait() == 0

    assert (tmp_path / "big.txt").read_text().endswith("row 39")


def test_a_plan_is_shown_and_approved(tmp_path: Path) -> None:
    call = {"name": "ExitPlanMode", "input": {"plan": "# The plan\n\n1. Do **this**"}}
    script = write_script(
        tmp_path,
        f"[[turn]]\ntools = [{{ name = 'ExitPlanMode', input = {{ plan = {json.dumps(call['input']['plan'])} }} }}]\n"  # type: ignore[index]
        f"[[turn]]\ntools = [{{ name = 'Write', input = {{ file_path = '{tmp_path}/x', content = 'y' }} }}]\n"
        "[[turn]]\ntext = 'Done.'",
    )
    with TerminalHarness(tmp_path, *script, "--permission-mode", "plan", "go") as terminal:
        terminal.wait_for(ASKED)
        assert terminal.emulator.lines[:4] == ["The plan", "", " 1. Do this", ""]
        terminal.type("a")
        assert terminal.wait() == 0

    assert (tmp_path / "x").read_text() == "y"


def test_questions_are_answered_by_number_and_in_words(tmp_path: Path) -> None:
    option = "{{ label = '{0}', description = 'It is {0}' }}"
    red, blue = option.format("Red"), option.format("Blue")
    options = f"header = 'h', options = [{red}, {blue}]"
    script = write_script(
        tmp_path,
        "[[turn]]\ntools = [{ name = 'AskUserQuestion', input = { questions = ["
        f"{{ question = 'One?', {options} }}, {{ question = 'Many?', multiSelect = true, {options} }},"
        f"{{ question = 'Other?', {options} }}] }} }}]\n[[turn]]\ntext = 'Thanks.'",
    )
    with TerminalHarness(tmp_path, *script, "go") as terminal:
        for question, keys in (("One?", "2"), ("Many?", "12\n"), ("Other?", "0")):
            terminal.wait_for(f"? {question}\n❯ 1 ")
            terminal.wait_for(ASKED)
            terminal.type(keys)
        terminal.wait_for("Your answer:")
        terminal.type("neither of them\n")
        assert terminal.wait() == 0

    [transcript] = (tmp_path / "home/.claude/projects").glob("*/*.jsonl")
    answers = {"One?": "Blue", "Many?": "Red, Blue", "Other?": "neither of them"}
    assert f'"answers":{json.dumps(answers, separators=(",", ":"))}' in transcript.read_text()


@pytest.mark.parametrize(("piped", "errors"), [(TOUCH, False), ("", True)])
def test_a_piped_prompt_cannot_be_asked_about(tmp_path: Path, piped: str, errors: bool) -> None:
    argv = (*OFFLINE, TOUCH) if errors else OFFLINE
    with TerminalHarness(tmp_path, *argv, stdin=piped) as terminal:
        assert terminal.wait() == 0

    assert "⊘ Running touch made.txt · denied" in terminal.emulator.text
    assert "there is no one to ask" in terminal.emulator.text.replace("\n  ", " ")
    assert not (tmp_path / "made.txt").exists()


def test_an_error_is_shown_and_the_exit_code_is_that_of_text_mode(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, "fail 400 that is wrong") as terminal:
        assert terminal.wait() == 1

    assert terminal.emulator.lines[0] == "API Error: 400 that is wrong"
    assert b"\x1b[1;31mAPI Error" in terminal.written


@pytest.mark.parametrize(
    ("argv", "calls"),
    [
        (('call Bash {"command": "ls"}\nsay Done.',), "2 model calls · "),
        (("--max-turns", "1", 'call Bash {"command": "ls"}\nsay Done.'), "1 model call · "),
        (("--json-schema", '{"type": "object"}', 'call StructuredOutput {"a": 1}'), "1 model call · "),
        (("/help",), "0 model calls · "),
    ],
)
def test_the_summary_counts_the_model_calls_of_the_prompt(tmp_path: Path, argv: tuple[str, ...], calls: str) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, *argv) as terminal:
        terminal.wait()

    assert terminal.emulator.lines[-1].startswith(calls)


def test_warnings_and_the_summary_go_to_stderr(tmp_path: Path) -> None:
    terminal = TerminalHarness(tmp_path, *OFFLINE, "say Hi.")
    terminal.program = ("sh", "-c", 'exec "$0" "$@" 2>errors', PARLEY)
    with terminal:
        assert terminal.wait() == 0

    assert terminal.emulator.lines == ["Hi."]
    assert re.fullmatch(SUMMARY, (tmp_path / "errors").read_text().strip())


def test_hostile_text_of_model_and_tool_has_no_effect(tmp_path: Path) -> None:
    evil = r"\u001b]0;title\u0007 \u001b[2J\u001b[31m \u202eevil \u009b5m \u2066x"
    script = write_script(
        tmp_path,
        f'[[turn]]\nthinking = "{evil}"\ntext = "text {evil}\\n\\n`{evil}`\\n\\n```\\n{evil}\\n```\\n"\n'
        f'tools = [{{ name = "Bash", input = {{ command = "echo {evil}", description = "{evil}" }} }}, '
        f'{{ name = "{evil}", input = {{ "{evil}" = "{evil}" }} }}]\nchunk_chars = 3\n'
        f'[[turn]]\nerror = {{ status = 400, message = "{evil}" }}',
    )
    with TerminalHarness(tmp_path, *script, "go") as terminal:
        terminal.wait_for(ASKED)
        terminal.type("y")
        terminal.wait()

    assert not HOSTILE.search(terminal.written)
    assert b"\x1b[2J" not in terminal.written
    assert "\\x1b]0;title\\x07" in terminal.emulator.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_and_the_terminal_is_restored(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, "wait 100") as terminal:
        terminal.wait_for("Waiting for the model")
        assert terminal.current_modes != terminal.modes
        terminal.signal(number)
        assert terminal.wait() == code
        assert terminal.current_modes == terminal.modes

    assert "Interrupted." in body(terminal)
    assert terminal.written.rfind(b"\x1b[?2004l") > terminal.written.rfind(b"\x1b[?2004h")


@pytest.mark.parametrize("key", ["\x03", "\x1b"])
def test_a_key_interrupts_a_running_command(tmp_path: Path, key: str) -> None:
    prompt = 'call Bash {"command": "sleep 100"}'
    with TerminalHarness(tmp_path, *OFFLINE, "--allowedTools", "Bash", "--", prompt) as terminal:
        terminal.wait_until(lambda: re.search(r"Running sleep 100 · \d+ s", terminal.emulator.text) is not None)
        terminal.type(key)
        assert terminal.wait() == 130

    assert body(terminal) == ["⊘ Running sleep 100 · interrupted", "", "Interrupted.", ""]


def test_a_second_signal_exits_at_once_and_the_terminal_is_restored(tmp_path: Path) -> None:
    hook = {"hooks": {"SessionEnd": [{"hooks": [{"type": "command", "command": "touch ending; sleep 100"}]}]}}
    with TerminalHarness(tmp_path, *OFFLINE, "--settings", json.dumps(hook), "wait 100") as terminal:
        terminal.wait_for("Waiting for the model")
        terminal.signal(signal.SIGTERM)
        terminal.wait_until((tmp_path / "ending").exists)
        terminal.signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert terminal.current_modes == terminal.modes


def test_no_colour_and_dumb_terminals_are_honoured(tmp_path: Path) -> None:
    script = write_script(tmp_path, '[[turn]]\ntext = "`code` and **bold**\\n"')
    with TerminalHarness(tmp_path, *script, "go", NO_COLOR="1") as terminal:
        terminal.wait()
    assert b"code and \x1b[1mbold" in terminal.written
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", terminal.written)

    with TerminalHarness(tmp_path, *script, "go", TERM="dumb") as terminal:
        terminal.wait()
    assert b"\x1b" not in terminal.written
    assert terminal.emulator.lines[0] == "code and bold"


def test_a_dumb_terminal_can_be_asked(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, TOUCH, TERM="dumb") as terminal:
        terminal.wait_for(ASKED)
        terminal.type("r")
        terminal.wait_for("Why not?")
        terminal.type("no need\n")
        assert terminal.wait() == 0

    assert b"\x1b" not in terminal.written
    assert "→ No: no need" in terminal.emulator.text


@pytest.mark.parametrize("prompt", [TOUCH, "wait 100"])
def test_a_terminal_that_is_closed_ends_the_run(tmp_path: Path, prompt: str) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, prompt) as terminal:
        terminal.wait_for(ASKED if prompt == TOUCH else "Waiting for the model")
        terminal.hang_up()
        assert terminal.process.wait(PATIENCE_SECONDS) == 143

    assert not (tmp_path / "made.txt").exists()


def test_a_narrow_window_has_everything(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, TOUCH, columns=40) as terminal:
        terminal.wait_for(ASKED)
        assert all(len(line) <= 40 for line in terminal.emulator.lines)
        for wanted in ("y Yes, once", "l Yes, always here", "n No", "touch made.txt"):
            assert wanted in terminal.emulator.text
        terminal.type("y")
        assert terminal.wait() == 0

    assert "✓ Running touch made.txt · ok · " in terminal.emulator.text


def test_commands_are_listed_that_make_sense_for_one_prompt(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, "/help") as terminal:
        assert terminal.wait() == 0

    commands = [line.partition(":")[0] for line in body(terminal) if line.startswith(" • ")]
    assert " • /context" in commands
    assert not {" • /clear", " • /model [model]"} & set(commands)


def test_lines_of_a_command_stay_lines(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, *OFFLINE, "/cost") as terminal:
        assert terminal.wait() == 0

    assert [line.partition(":")[0] for line in body(terminal) if line] == [
        *("Total cost", "Total duration (API)", "Total duration (wall)", "Usage")
    ]


def test_print_is_plain_at_a_terminal(tmp_path: Path) -> None:
    script = write_script(tmp_path, '[[turn]]\ntext = "# Title\\n\\n**bold**"')
    with TerminalHarness(tmp_path, "-p", *script, "go") as terminal:
        assert terminal.wait() == 0

    assert terminal.written == b"# Title\r\n\r\n**bold**\r\n"


def test_nothing_of_it_is_imported_for_scripts(tmp_path: Path) -> None:
    program = (
        "import sys; from parley.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "PARTS = ('parley.cli.one_prompt', 'parley.terminal', 'rich', 'markdown_it', 'prompt_toolkit')\n"
        "print([name for name in sys.modules if name.startswith(PARTS)])\n"
    )
    for argv in (["-p", "say Hi"], ["say Hi"], ["-p", "--verbose", "--output-format", "stream-json", "say Hi"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *OFFLINE, *argv],
            cwd=tmp_path,
            env=make_environment(tmp_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "[]"


def test_an_elicitation_is_asked_field_by_field(tmp_path: Path) -> None:
    servers = {"mcpServers": {"shop": {"command": sys.executable, "args": [str(paths.MCP_SERVERS / "greeter.py")]}}}
    argv = (*OFFLINE, "--mcp-config", json.dumps(servers), "--allowedTools", "mcp__shop", "--")
    with TerminalHarness(tmp_path, *argv, "call mcp__shop__greet\nshow") as terminal:
        terminal.wait_for("? The MCP server shop asks (shop)\n  What is your name?")
        terminal.wait_until(lambda: terminal.emulator.lines[-1].strip() == "name:")
        terminal.type("\n")
        terminal.wait_for("a value is required")
        terminal.type("Ada\n")
        assert terminal.wait() == 0
    assert body(terminal)[-2] == "Hello, Ada."

    with TerminalHarness(tmp_path, *argv, "call mcp__shop__greet\nshow") as terminal:
        terminal.wait_until(lambda: terminal.emulator.text.endswith("name:\n"))
        terminal.type("\x1b")
        assert terminal.wait() == 0
    assert body(terminal)[-2] == "(decline)"

    with TerminalHarness(tmp_path, *argv, "call mcp__shop__greet\nshow", stdin="") as terminal:
        assert terminal.wait() == 0
    assert "the MCP server shop has a question, but stdin is not a terminal" in terminal.emulator.text
    assert body(terminal)[-2] == "(cancel)"


def test_subagents_and_background_tasks_have_lines_of_their_own(tmp_path: Path) -> None:
    script = write_script(
        tmp_path,
        "[[turn]]\nwhen = 'go on'\n"
        "tools = [{ name = 'Agent', input = { description = 'Count files', prompt = 'count' } }"
        ", { name = 'Bash', input = { command = 'true', description = 'Slow', run_in_background = true } }]\n"
        "[[turn]]\nwhen = 'count'\ntools = [{ name = 'Bash', input = { command = 'ls' } }]\n"
        "[[turn]]\ntext = 'There are 3.'\n[[turn]]\ntext = 'Done.'\n[[turn]]\ntext = 'The task is over.'\n",
    )
    with TerminalHarness(tmp_path, *script, "--allowedTools", "Bash", "--", "go on") as terminal:
        assert terminal.wait() == 0

    lines = [re.sub(r" · [0-9.]+ s", "", line) for line in body(terminal) if line]
    assert body(terminal)[0].startswith("✓ Delegating Count files · 1 step · ")
    assert set(lines[1:]) >= {
        "▸ In the background: Slow",
        "✓ Running Slow: true · ok",
        "✓ In the background: Slow · completed",
        "Done.",
        "The task is over.",
    }
