"""`parley` at a real terminal multiplexer: conversations from the first prompt to the last."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.gateway import Server
from tests.helpers.terminal import TerminalHarness, TmuxHarness

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed (apt install tmux)")

PARAGRAPHS = [f"Paragraph {number} has **some** words and ends here." for number in range(20)]
WITHOUT_EXTRA = """
import sys
sys.modules |= dict.fromkeys(("prompt_toolkit", "markdown_it"))
from parley.cli.main import run
run()
"""
READY = "context 0 %"
"""The status line says this once the engine is ready."""


def call(name: str, **given: object) -> str:
    return calls((name, given))


def calls(*given: tuple[str, object]) -> str:
    return f"tools = {to_toml([{'name': name, 'input': each} for name, each in given])}"


def to_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {to_toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value)


def write_script(folder: Path, **turns: str) -> None:
    """A turn for each prompt that contains a word, and answers for what follows a tool."""
    texts = [f"[[turn]]\nwhen = {json.dumps(word.replace('_', ' '))}\n{turn}\n" for word, turn in turns.items()]
    texts += [f"[[turn]]\ntext = 'Answer {number}.'\n" for number in range(1, 15)]
    (folder / "script.toml").write_text("".join(texts))


def send(tmux: TmuxHarness, text: str) -> None:
    tmux.type(text)
    tmux.press("Enter")


QUESTION = {"question": "Which colour?", "header": "Colour", "multiSelect": False}
COLOURS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]


def test_a_conversation_with_every_kind_of_question(tmp_path: Path) -> None:
    notes = str(tmp_path / "notes.txt")
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "wait.sh").write_text("while [ ! -e go ]; do sleep 0.05; done")
    text = json.dumps("\n\n".join(PARAGRAPHS))
    write_script(
        tmp_path,
        stream=f"text = {text}\nchunk_chars = 8\nevent_delay_ms = 8\n{call('Bash', command='sh wait.sh')}",
        change=calls(
            ("Read", {"file_path": notes}), ("Edit", {"file_path": notes, "old_string": "two", "new_string": "TWO"})
        ),
        make_a=call("Bash", command="mkdir made"),
        forbidden=call("Bash", command="mkdir forbidden"),
        plan_it=call("ExitPlanMode", plan="# First plan\n\n1. think"),
        Revise_it=call("ExitPlanMode", plan="# Second plan\n\n1. act"),
        choose=call("AskUserQuestion", questions=[{**QUESTION, "options": COLOURS}]),
        wait=call("Bash", command="sleep 60"),
    )
    with TmuxHarness(tmp_path, rows=40) as tmux:
        tmux.start("--model", "scripted:script.toml", "--allowedTools", "Bash(sh wait.sh)", "Bash(sleep *)", "Read")
        tmux.wait_for(READY)
        # A streamed answer, resized while it arrives; two prompts that wait for its tool.
        send(tmux, "please stream")
        tmux.wait_for("Paragraph 3 has")
        tmux.resize(50, 20)
        send(tmux, "first in line")
        send(tmux, "second in line")
        tmux.wait_for("queued: second in line")
        tmux.press("Up")
        tmux.type(", edited")
        tmux.resize(90, 40)
        tmux.press("Enter")
        tmux.wait_for("queued: second in line, edited")
        (tmp_path / "go").touch()
        tmux.wait_for("> second in line, edited\n")
        shown = tmux.wait_for("Answer 3.")
        assert [int(number) for number in re.findall(r"Paragraph (\d+) has some words", shown)] == list(range(20))
        # An edit with its diff, allowed once; a command, allowed always; another, denied with a reason.
        send(tmux, "change it")
        tmux.wait_for("+TWO")
        tmux.press("y")
        tmux.wait_for("Answer 4.")
        send(tmux, "make a folder")
        tmux.wait_for("allow Bash(mkdir made *)")
        tmux.press("l")
        tmux.wait_for("Answer 5.")
        send(tmux, "the forbidden one")
        tmux.wait_for("mkdir forbidden\n")
        tmux.wait_for("r No, and say why")
        tmux.press("r")
        tmux.wait_for("Why not?")
        send(tmux, "not today")
        tmux.wait_for("Answer 6.")
        # A plan that is revised, then approved; a question.
        send(tmux, "plan it")
        tmux.wait_for("First plan")
        tmux.wait_for("r Revise it")
        tmux.press("r")
        tmux.wait_for("What should change?")
        send(tmux, "act")
        tmux.wait_for("Second plan")
        tmux.wait_for("a Yes, and accept all edits")
        tmux.press("a")
        tmux.wait_for("Answer 7.")
        send(tmux, "let me choose")
        tmux.wait_for("2 Blue")
        tmux.press("2")
        tmux.wait_for("Answer 8.")
        # An interrupt while a tool runs, and the way back to before the first edit.
        send(tmux, "wait for it")
        tmux.wait_for("Running sleep 60")
        tmux.press("Escape")
        tmux.wait_for("Interrupted.")
        tmux.press("Escape", "Escape")
        tmux.wait_for("Go back to before which message?")
        tmux.type("change")
        tmux.press("Enter")
        tmux.wait_for("b the conversation and the files")
        tmux.press("b")
        tmux.wait_for("The conversation is as it was before: change it")
        assert (tmp_path / "notes.txt").read_text() == "one\ntwo\nthree\n"
        tmux.press("C-c", "C-c")
        shown = tmux.wait_for("exit=0")

        rules = json.loads((tmp_path / ".claude/settings.local.json").read_text())["permissions"]["allow"]
        assert rules == ["Bash(mkdir made *)"]
        assert [(tmp_path / name).is_dir() for name in ("made", "forbidden")] == [True, False]
        for line in (
            "    2 -two",
            "  → Yes, once",
            "  → Yes, always here: allow Bash(mkdir made *)",
            "  → No: not today",
            "  → Revise: act",
            "  → Yes, and accept all edits",
            "  → Blue",
            "⊘ Running sleep 60 · interrupted",
        ):
            assert line in shown.splitlines()
        # The session continues in another directory, without what was rewound.
        session_id = re.findall(r"parley --resume (\S+)", shown)[-1]
        (tmp_path / "other").mkdir()
        send(tmux, "cd other; clear; tmux clear-history")
        tmux.start("--model", "scripted:../script.toml", "--resume", session_id)
        tmux.wait_for(READY)
        send(tmux, "where am I")
        shown = tmux.wait_for("> where am I\n\nAnswer 1.")
        after = shown.rpartition("--resume")[2]  # all of it, if the command has left the history
        assert "> second in line, edited" in after
        assert "> change it" not in after


async def test_two_terminals_share_a_session_of_a_gateway(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline") as server:
        session_id = await server.create()
        await asyncio.to_thread(use_two_terminals, tmp_path, server, session_id)
        assert (server.root / "made").exists()


def use_two_terminals(folder: Path, server: Server, session_id: str) -> None:
    folders = [folder / "a", folder / "b"]
    for each in folders:
        each.mkdir()
    with TmuxHarness(folders[0]) as first, TmuxHarness(folders[1]) as second:
        for tmux in (first, second):
            send(tmux, f"export PARLEY_TOKEN={server.token}; clear")
            tmux.start("attach", f"{server.url}/sessions/{session_id}")
        for tmux in (first, second):
            tmux.wait_for(READY)
        send(first, "say Hello from the first.")
        for tmux in (first, second):
            tmux.wait_for("\nHello from the first.")
        assert "> say Hello from the first." in second.text
        # Both are asked; the second answers, and the question disappears from the first.
        send(second, 'call Bash {"command": "touch made"}')
        for tmux in (first, second):
            tmux.wait_for("y Yes, once")
        second.press("y")
        for tmux in (first, second):
            tmux.wait_for("✓ Running touch made")
        assert "withdrawn: it was answered elsewhere" in first.text
        assert "y Yes, once" not in first.wait_for(">")
        first.press("C-d")
        first.wait_for("exit=0")
        # A terminal that comes later shows what was said.
        first.start("attach", f"{server.url}/sessions/{session_id}")
        first.wait_for(READY)
        assert first.text.count("> say Hello from the first.") == 2


def test_plain_mode_prints_lines_and_never_moves_the_cursor(tmp_path: Path) -> None:
    write_script(tmp_path, make_a=call("Bash", command="mkdir made"))
    with TerminalHarness(tmp_path, "--ax-screen-reader", "--model", "scripted:script.toml") as terminal:
        terminal.wait_for("\n>")
        terminal.type("make a folder\n")
        terminal.wait_for("key (empty cancels):")
        terminal.type("y\n")
        terminal.wait_for("Answer 1.")
        terminal.type("/exit\n")
        assert terminal.wait() == 0

    sequences = set(re.findall(rb"\x1b\[[0-9;?]*[a-zA-Z]", terminal.written))
    assert {sequence for sequence in sequences if not sequence.endswith(b"m")} == set()
    assert (tmp_path / "made").is_dir()


class BareHarness(TerminalHarness):
    """An installation without the extra."""

    program = (sys.executable, "-c", WITHOUT_EXTRA)


def test_without_the_extra_the_conversation_is_plain_and_says_how_to_get_it(tmp_path: Path) -> None:
    write_script(tmp_path)
    with BareHarness(tmp_path, "--model", "scripted:script.toml") as terminal:
        terminal.wait_for("\n>")
        terminal.type("hello\n")
        terminal.wait_for("Answer 1.")
        terminal.type("\x04")
        assert terminal.wait() == 0

    assert "install an extra" in terminal.emulator.lines[0]


def test_a_closed_terminal_leaves_a_session_that_resumes(tmp_path: Path) -> None:
    write_script(tmp_path, wait=call("Bash", command="sleep 60"))
    options = ("--model", "scripted:script.toml", "--allowedTools", "Bash(sleep *)")
    with TerminalHarness(tmp_path, *options) as terminal:
        terminal.wait_for(READY)
        terminal.type("wait for it\r")
        terminal.wait_for("Running sleep 60")
        terminal.hang_up()
        assert terminal.wait_exit() == 129
    with TerminalHarness(tmp_path, *options, "--continue") as terminal:
        terminal.wait_for("> wait for it")
        terminal.wait_for(READY)
        terminal.type("and now\r")
        terminal.wait_for("Answer 1.")
        terminal.type("\x04")
        assert terminal.wait() == 0


def test_the_setting_editor_mode_gives_the_keys_of_vi(tmp_path: Path) -> None:
    (tmp_path / "home/.claude").mkdir(parents=True)
    (tmp_path / "home/.claude/settings.json").write_text('{"editorMode": "vim"}')
    with TerminalHarness(tmp_path, "--model", "offline") as terminal:
        terminal.wait_for(READY)
        terminal.type("say Good dayx")
        terminal.wait_for("> say Good dayx")
        terminal.type("\x1b")
        terminal.wait_for_cursor(column=len("> say Good day"))
        terminal.type("x\r")
        terminal.wait_for("\nGood day\n")
        terminal.type("\x03\x03")
        assert terminal.wait() == 0


def test_no_program_of_the_person_comes_from_a_working_directory(tmp_path: Path) -> None:
    """By its name on the PATH: in a folder that was added, or through a link into one."""
    work, added, links = tmp_path / "work", tmp_path / "added", tmp_path / "links"
    for folder in (work, added, links):
        folder.mkdir()
    for name, folder in {"my-editor": added, "my-status": added, "linked-editor": links}.items():
        (added / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/ran\necho planted\n")
        (added / name).chmod(0o755)
        if folder == links:
            (links / name).symlink_to(added / name)
    settings = json.dumps({"statusLine": {"type": "command", "command": "my-status"}})
    words = ("--model", "offline", "--add-dir", str(added), "--settings", settings)
    path = f"{added}:{links}:{os.environ['PATH']}"
    for editor, reason in (("my-editor", "No such file"), ("linked-editor", "the session can change")):
        with TerminalHarness(work, *words, PATH=path, EDITOR=editor) as terminal:
            terminal.wait_for("statusLine: exit code 127")
            terminal.type("\x07")
            terminal.wait_for(reason)
            terminal.type("\x03\x03")
            assert terminal.wait() == 0
    assert not (tmp_path / "ran").exists()


def test_an_unknown_command_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, "--model", "offline") as terminal:
        terminal.wait_for(READY)
        terminal.type("/permisions")
        terminal.wait_for("> /permisions")
        terminal.type("\r")
        terminal.wait_for("unknown command /permisions (did you mean /permissions?)")


def test_the_input_takes_pastes_an_editor_and_commands_of_the_person(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, "--model", "offline", EDITOR="sed -i s/draft/final/") as terminal:
        terminal.wait_for(READY)
        terminal.type("say a draft")
        terminal.wait_for("> say a draft")
        terminal.type("\x07")
        terminal.wait_for("> say a final")
        terminal.type("\r")
        terminal.wait_for("\na final\n")
        terminal.type("\x1b[200~" + "say word\r" * 30 + "\x1b[201~")
        terminal.wait_for("[pasted text 1: 30 lines]")
        terminal.type("\r")
        terminal.wait_for("\n" + "word " * 10)
        terminal.type("!echo $((20 + 3)); printf '\\033[2J'\r")
        terminal.wait_for("\n  23\n  \\x1b[2J\n")
        terminal.type("\x12")  # Ctrl-R
        terminal.wait_for("search:")
        terminal.type("final\r")
        terminal.wait_for("\n> say a final\nasks before changes")
        terminal.type("\x03\x04")
        assert terminal.wait() == 0
        assert terminal.current_modes == terminal.modes
