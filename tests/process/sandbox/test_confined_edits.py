"""Commands that are allowed because they only edit cannot write elsewhere, whatever changes after the decision.

Each race is certain: the command waits for a pipe, and what its target leads to is changed before the pipe is written.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import sandbox_session
from tests.helpers.sandbox_session import Ran

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is for Linux")
ACCEPT = ("--permission-mode", "acceptEdits")
OFF = {"enabled": False}
UNCONFINED = {"enabled": False, "confineReaders": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def find_processes(words: str, folder: Path) -> Iterator[int]:
    """Processes with these words in a folder, as they see it."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            given = Path("/proc", name, "cmdline").read_text(errors="replace")
            if words in given and os.readlink(f"/proc/{name}/cwd") == str(folder):
                yield int(name)
        except OSError:
            continue


def run_raced(command: str, folder: Path, target: Path, *flags: str, kind: str = "") -> Ran:
    """Run a command that reads `pipe`. When it waits, `place` becomes a symlink to the target."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(target)
    with ThreadPoolExecutor() as threads:
        ran = threads.submit(sandbox_session.run, command, folder, *(flags or ACCEPT), kind=kind, sandbox=OFF)
        while not ran.done() and not any(find_processes("\0pipe\0", folder)):
            time.sleep(0.01)
        os.rename(folder / "link", folder / "place")
        while not ran.done():
            try:
                writer = os.open(folder / "pipe", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # no one reads it yet
                time.sleep(0.01)
                continue
            with contextlib.suppress(BrokenPipeError):  # it could not write
                os.write(writer, b"EVIL")
            os.close(writer)
            break
        return ran.result()


@pytest.mark.parametrize("kind", sandbox_session.KINDS)
def test_a_path_that_is_moved_into_place_does_not_lead_out(kind: str, folder: Path) -> None:
    sandbox_session.require(kind)
    outside = folder.parent / "outside"
    outside.mkdir()
    ran = run_raced("cp pipe place/.bash_profile.new", folder, outside, kind=kind)
    assert "cannot create regular file" in ran.output
    assert list(outside.iterdir()) == []


def test_a_path_that_is_moved_into_place_does_not_lead_to_protected_files(folder: Path) -> None:
    sandbox_session.require("bubblewrap")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    hooks = folder / ".git/hooks"
    before = sorted(hooks.iterdir())
    ran = run_raced("cp pipe place/pre-commit", folder, hooks, kind="bubblewrap")
    assert "ead-only" in ran.output
    assert sorted(hooks.iterdir()) == before


def test_rules_for_files_confine_the_command_as_well(folder: Path) -> None:
    sandbox_session.require("bubblewrap")
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "notes").write_text("EVIL")
    flags = ("--permission-mode", "default", "--allowedTools", "Edit(./**)", "Bash(true)")
    ran = run_raced("cat pipe && cat notes > place/x", folder, outside, *flags)
    assert "place/x: " in ran.output
    assert list(outside.iterdir()) == []


def test_everyday_edits_work_and_leave_nothing_behind(folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    commands = ("mkdir -p src/new", "touch src/new/b.txt", "cp a.txt src/c.txt", "sed -i s/one/two/ a.txt")
    calls = [("Bash", {"command": command}) for command in (*commands, "mv src/c.txt d.txt && rm -r src/new")]
    sandbox_session.play(calls, folder, *ACCEPT, sandbox=OFF)
    assert sorted(path.name for path in folder.rglob("*")) == ["a.txt", "d.txt", "src"]
    assert (folder / "a.txt").read_text() == "two\n"


def play_beside(command: str, folder: Path, **more: Any) -> Ran:
    """Run a command while another one waits for a pipe, and end that afterwards."""
    os.mkfifo(folder / "waits")
    (folder / "word").write_text("end")
    release = "tee waits < word"
    calls: list[dict[str, Any]] = [
        {"command": "cat waits", "run_in_background": True},
        {"command": command},
        {"command": release},
    ]
    flags = (*ACCEPT, "--allowedTools", f"Bash({release})")
    return sandbox_session.play([("Bash", call) for call in calls], folder, *flags, **more)


@pytest.mark.parametrize("sandbox", [OFF, UNCONFINED])
def test_without_bubblewrap_an_edit_asks_while_another_command_runs(sandbox: dict[str, bool], folder: Path) -> None:
    sandbox_session.run("mkdir made", folder, *ACCEPT, kind="landlock", sandbox=sandbox)
    assert (folder / "made").is_dir()

    ran = play_beside("mkdir other", folder, kind="landlock", sandbox=sandbox)
    assert "no other command runs" in ran.outputs[1]
    assert not (folder / "other").exists()


def test_with_bubblewrap_it_does_not_ask(folder: Path) -> None:
    sandbox_session.require("bubblewrap")
    play_beside("mkdir made", folder, sandbox=OFF)
    assert (folder / "made").is_dir()
