"""What a person who keeps the terminal open all day relies on."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.gateway import Server
from tests.helpers.tcp_proxy import TcpProxy
from tests.helpers.terminal import TerminalHarness, TmuxHarness

READY = "context 0 %"
tmux_only = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed (apt install tmux)")


def send(tmux: TmuxHarness, text: str) -> None:
    tmux.type(text)
    tmux.press("Enter")


@tmux_only
def test_a_resumed_session_looks_as_it_did(tmp_path: Path) -> None:
    todos = json.dumps({"todos": [{"content": "Ship it", "status": "pending", "activeForm": "x"}]})
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    edit = json.dumps({"file_path": str(tmp_path / "a.txt"), "old_string": "two", "new_string": "2"})
    read = json.dumps({"file_path": str(tmp_path / "a.txt")})
    with TmuxHarness(tmp_path, columns=120, rows=60) as tmux:
        tmux.start("--model", "offline", "--allowedTools", "Read", "Edit", "TodoWrite")
        tmux.wait_for(READY)
        tmux.wait_for("Parley 0.1.0 · offline · ")
        send(tmux, 'call Bash {"command": "mkdir made"}')
        tmux.wait_for("r No, and say why")
        tmux.press("n")
        tmux.wait_for("⊘ Running mkdir made · denied")
        tmux.wait_for("Done.")
        for prompt in (f"call Read {read}", f"call Edit {edit}", f"call TodoWrite {todos}"):
            tmux.press("C-l")
            send(tmux, prompt)
            tmux.wait_for("asks before changes")
        tmux.wait_for("☐ Ship it")
        send(tmux, "/plan")
        tmux.wait_for("plan mode · offline")
        send(tmux, "/rename The great work")
        tmux.wait_for("The session is called The great work.")
        tmux.press("C-d")
        tmux.wait_for("exit=0")
        send(tmux, "clear; tmux clear-history")
        tmux.start("--model", "offline", "--resume", "the great WORK")
        tmux.wait_for(READY)
        shown = tmux.wait_for("☐ Ship it")
        assert "⊘ Running mkdir made · denied: The user denied this call." in shown
        assert "    2 -two\n    2 +2\n" in shown
        tmux.wait_for("plan mode · offline")
        send(tmux, "/todos")
        tmux.wait_for("> /todos\n\n  ☐ Ship it")
        send(tmux, "say one more")
        tmux.wait_for("\none more\n")
        send(tmux, "/fork Another try")
        tmux.wait_for("\nSession ")
        tmux.wait_for("> say one more\n\none more\n\n>", after="\nSession ")
        tmux.press("Escape", "Escape")
        tmux.wait_for("call Read", after="Go back to before which message?")
        tmux.press("Escape")


def test_ctrl_c_never_loses_what_was_typed(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, "--model", "offline") as terminal:
        terminal.wait_for(READY)
        for text in ("first draft", "second draft"):
            terminal.type(text)
            terminal.wait_for(f"\n> {text}")
            terminal.type("\x03")
            terminal.wait_until(lambda: "draft" not in terminal.emulator.text)
        terminal.type("\x1b[A")
        terminal.wait_for("\n> second draft")
        terminal.type("\x1b[A")
        terminal.wait_for("\n> first draft")
        terminal.type("\x03\x03")
        assert terminal.wait() == 0
    with TerminalHarness(tmp_path, "--model", "offline") as terminal:
        terminal.wait_for(READY)
        terminal.type("\x1b[A")
        terminal.wait_for("\n> first draft")


def test_a_mistyped_command_of_the_terminal_sends_nothing(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, "--model", "offline", columns=120) as terminal:
        terminal.wait_for(READY)
        terminal.type("/rewnd\r")
        terminal.wait_for("unknown command /rewnd (did you mean /rewind?); nothing was sent")
        terminal.type("/xyzzy\r")
        terminal.wait_for("unknown command")
        terminal.type("/exit\r")
        assert terminal.wait() == 0

    assert "You said" not in terminal.emulator.text


@tmux_only
def test_thinking_todos_and_the_branch_are_shown_on_demand(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=tmp_path, check=True)
    todos = json.dumps({"todos": [{"content": "Ship it", "status": "in_progress", "activeForm": "x"}]})
    with TmuxHarness(tmp_path, columns=140) as tmux:
        tmux.start("--model", "offline", "--allowedTools", "TodoWrite")
        tmux.wait_for("⎇ trunk")
        tmux.press("C-t")
        tmux.wait_for("Todos and background tasks\n  none yet")
        tmux.press("M-t")
        tmux.wait_for("thinking is shown from now on")
        tmux.type("think about it")
        tmux.press("C-j")
        tmux.type("wait 3600")
        tmux.press("C-j")
        tmux.type("say never")
        tmux.press("Enter")
        tmux.wait_for("\nabout it\n")  # while the model still thinks
        tmux.press("Escape")
        tmux.wait_for("Interrupted.")
        send(tmux, f"call TodoWrite {todos}")
        tmux.wait_for("Todos and background tasks\n  ◐ Ship it")
        tmux.press("C-t")
        tmux.wait_for("Done.")


def test_what_comes_before_a_wait_is_on_the_screen_before_it(tmp_path: Path) -> None:
    with TerminalHarness(tmp_path, "--model", "offline") as terminal:
        terminal.wait_for(READY)
        terminal.type("\x1b[200~say early\nwait 3600\nsay late\x1b[201~\r")
        terminal.wait_until(lambda: re.search(r"\nearly\n", terminal.emulator.text) is not None)
        terminal.type("\x1b")
        terminal.wait_for("Interrupted.")
        assert "\nlate" not in terminal.emulator.text


def test_it_calls_a_person_who_waits_elsewhere(tmp_path: Path) -> None:
    settings = tmp_path / "home/.claude/settings.json"
    settings.parent.mkdir(parents=True)
    for channel in ("auto", "notifications_disabled"):
        settings.write_text(json.dumps({"preferredNotifChannel": channel}))
        with TerminalHarness(tmp_path, "--model", "offline") as terminal:
            terminal.wait_for(READY)
            terminal.type('\x1b[200~wait 11\ncall Bash {"command": "mkdir made"}\x1b[201~\r')
            terminal.wait_for("y Yes, once")
        assert (b"\x07\x1b]9;Parley has a question\x1b\\" in terminal.written) == (channel == "auto")


@tmux_only
async def test_a_lost_connection_to_a_gateway_and_its_return_are_shown(tmp_path: Path) -> None:
    async with Server(tmp_path, "--model", "offline") as server, TcpProxy(server.port) as proxy:
        session_id = await server.create()
        with TmuxHarness(tmp_path) as tmux:
            send(tmux, f"export PARLEY_TOKEN={server.token}; clear")
            tmux.start("attach", f"http://127.0.0.1:{proxy.port}/sessions/{session_id}")
            await asyncio.to_thread(tmux.wait_for, READY)
            proxy.cut()
            await asyncio.to_thread(tmux.wait_for, "The connection to the gateway is lost; trying again…")
            proxy.heal()
            await asyncio.to_thread(tmux.wait_for, "The connection to the gateway is back.")
            send(tmux, "say Still here.")
            await asyncio.to_thread(tmux.wait_for, "\nStill here.")


def test_a_line_that_begins_with_a_number_sign_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Use tabs.\n")
    with TerminalHarness(tmp_path, "--model", "offline", columns=140) as terminal:
        terminal.wait_for(READY)
        terminal.type("# Use spaces.\r")
        terminal.wait_for("Remember 'Use spaces.' in")
        terminal.wait_for("Project instructions")
        terminal.type("\x1b[5~")
        terminal.wait_until(lambda: "❯ Project instructions" in terminal.emulator.text)
        terminal.type("\r")
        terminal.wait_for("Added to")
        terminal.type("hello\r")
        terminal.wait_for("You said: I added this to")

    assert (tmp_path / "CLAUDE.md").read_text() == "Use tabs.\n- Use spaces.\n"
