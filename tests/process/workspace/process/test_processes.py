"""Real commands through a real guard: what comes back, what is ended, what is left behind (nothing)."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.process import processes as module
from parley.workspace.process.processes import (
    CommandEnd,
    CommandOutput,
    Finished,
    PreparedCommand,
    Processes,
    RunningCommand,
    encode_request,
)
from tests.helpers.descriptors import spare_descriptors
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.workspace import surviving_processes

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
ADOPTS = sys.platform == "linux"


class Terminal:
    """Commands in a folder, and the pids they leave in its files."""

    def __init__(self, folder: Path, *, may_adopt: bool = True) -> None:
        self.folder = folder
        self.processes = Processes(may_adopt=may_adopt)
        self.environment = dict(ENVIRONMENT)

    async def run(self, line: str, *, timeout_seconds: float = PATIENCE_SECONDS, keep_bytes: int = 10_000) -> Finished:
        argv = ["/bin/bash", "--norc", "--noprofile", "-c", line]
        prepared = PreparedCommand(argv=argv, cwd=str(self.folder), environment=self.environment)
        output = CommandOutput(keep_bytes, lambda: self.folder / "spilled")
        return await self.processes.run(prepared, timeout_seconds, output)

    async def start(self, line: str) -> RunningCommand:
        argv = ["/bin/bash", "-c", line]
        prepared = PreparedCommand(argv=argv, cwd=str(self.folder), environment=self.environment)
        return await self.processes.start(prepared, lambda data: None)

    async def text(self, line: str) -> str:
        return (await self.run(line)).output.decode()

    async def refusal(self, line: str) -> str:
        with pytest.raises(ToolError) as refused:
            await self.run(line)
        return str(refused.value)

    def pids(self, *names: str) -> list[int]:
        return [int((self.folder / name).read_text()) for name in names]

    async def written(self, *names: str) -> list[int]:
        """The pids in these files, once they are there."""
        await eventually(lambda: all((self.folder / name).is_file() for name in names))
        await eventually(lambda: all((self.folder / name).read_text().endswith("\n") for name in names))
        return self.pids(*names)


async def at(folder: Path, scenario: Callable[[Terminal], Awaitable[None]], *, may_adopt: bool = True) -> None:
    """Run a scenario with a terminal. Afterwards no process of it is left and no further descriptor is open."""
    before = open_descriptors()

    terminal = Terminal(folder, may_adopt=may_adopt)
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        try:
            await scenario(terminal)
        finally:
            await terminal.processes.close()

    assert open_descriptors() <= before


def open_descriptors() -> set[str]:
    """The numbers of the open descriptors. Those that earlier tests have left as garbage are closed first."""
    gc.collect()
    return {name for name in os.listdir("/dev/fd") if os.path.lexists(f"/dev/fd/{name}")}


async def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


def alive(pids: Iterable[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    found = []
    for pid in pids:
        with suppress(ProcessLookupError, FileNotFoundError):  # it may end between two looks
            os.kill(pid, 0)
            if not ADOPTS or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


async def guard_of(terminal: Terminal) -> int:
    """The pid of the guard: the parent of the keeper, who is the parent of a shell."""
    return int(await terminal.text("read -r stat < /proc/$PPID/stat; set -- ${stat##*) }; echo $2"))


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def until_dead(child: int) -> None:
    """Wait for it without letting the loop know."""
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


# What comes back.


async def test_output_comes_back_merged_with_the_exit_code(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        done = await terminal.run("echo out; echo err >&2; exit 3")
        assert done == Finished(
            exit_code=3, output=b"out\nerr\n", total_bytes=8, spilled_to=None, last_words="", timed_out=False
        )

    await at(tmp_path, scenario)


async def test_a_command_that_was_killed_has_its_signal_as_exit_code(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert (await terminal.run("kill -SEGV $$")).exit_code == -signal.SIGSEGV

    await at(tmp_path, scenario)


async def test_stdin_is_empty(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert await terminal.text("cat; echo over") == "over\n"

    await at(tmp_path, scenario)


async def test_the_last_output_is_read_whatever_bytes_it_has(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9\nbar"
    os.mkdir(folder)

    async def scenario(terminal: Terminal) -> None:
        done = await terminal.run("cd caf*; pwd -P >&199")
        assert os.fsencode(done.last_words) == folder + b"\n"

    await at(tmp_path, scenario)


async def test_much_output_is_kept_in_a_file_and_little_of_it_in_memory(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        done = await terminal.run("head -c 5000000 /dev/zero", keep_bytes=1000)
        assert (done.output, done.total_bytes) == (bytes(1000), 5_000_000)
        assert done.spilled_to == str(tmp_path / "spilled")

    await at(tmp_path, scenario)
    assert (tmp_path / "spilled").read_bytes() == bytes(5_000_000)


async def test_a_child_in_the_background_does_not_hold_up_its_command(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert await terminal.text("sleep 600 & echo $! > child; echo ok") == "ok\n"
        assert alive(terminal.pids("child"))

    await at(tmp_path, scenario)
    assert alive([int((tmp_path / "child").read_text())]) == []


async def test_what_is_left_behind_may_continue_writing(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        loud = "(trap '' PIPE; yes 2>/dev/null; echo broken > broken) & echo $! > child; echo ok"
        assert (await terminal.run(loud)).output.startswith((b"ok\n", b"y\n"))
        assert await terminal.text("echo another") == "another\n"
        assert alive(terminal.pids("child"))
        assert not (tmp_path / "broken").exists()

    await at(tmp_path, scenario)


# What it gets.


async def test_the_environment_is_exactly_what_was_given(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        terminal.environment = {"A": "1", "B": "two=2\nlines", "C": os.fsdecode(b"\xff")}
        output = (await terminal.run("/usr/bin/env -0")).output
        # The shell adds its own.
        assert {part for part in output.split(b"\0") if part[:2] in (b"A=", b"B=", b"C=")} == {
            b"A=1",
            b"B=two=2\nlines",
            b"C=\xff",
        }
        assert {part.split(b"=")[0] for part in output.split(b"\0")[:-1]} == {
            b"A", b"B", b"C", b"PWD", b"SHLVL", b"_",
        }  # fmt: skip

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="looks into /proc")
async def test_the_guard_has_no_environment_and_a_command_only_its_own_descriptors(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        terminal.environment |= {"ANTHROPIC_API_KEY": "not for the guard"}
        guard = await guard_of(terminal)
        assert environment_of(guard) == b""
        listing = await terminal.text("ls /proc/self/fd")
        # 3 is the listing itself.
        assert listing.split() == ["0", "1", "199", "2", "3"]

    await at(tmp_path, scenario)


async def test_signals_that_the_engine_ignores_work_in_a_command(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert (await terminal.run("yes | head -n 1; exit ${PIPESTATUS[0]}")).exit_code == 128 + signal.SIGPIPE
        assert (await terminal.run("kill -INT $$")).exit_code == -signal.SIGINT

    await at(tmp_path, scenario)


async def test_a_large_environment_arrives(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        terminal.environment |= {f"V{number}": "x" * 50_000 for number in range(20)}
        assert await terminal.text("echo ${#V0} ${#V19}") == "50000 50000\n"

    await at(tmp_path, scenario)


# What cannot be.


async def test_an_environment_beyond_the_kernels_limit_is_refused_with_its_reason(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        terminal.environment |= {f"V{number}": "x" * 100_000 for number in range(100)}
        assert "Argument list too long" in await terminal.refusal("true")
        terminal.environment = dict(ENVIRONMENT)
        assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        terminal.folder = tmp_path / "gone"
        text = await terminal.refusal("true")
        assert text.startswith("the command could not be started: ")
        assert str(tmp_path / "gone") in text

    await at(tmp_path, scenario)


@pytest.mark.parametrize(("line", "word"), [("echo a\0b", "NUL"), ("echo \ud800", "surrogate")])
async def test_what_no_command_line_can_hold_is_refused(tmp_path: Path, line: str, word: str) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert word in await terminal.refusal(line)

    await at(tmp_path, scenario)


@pytest.mark.parametrize("interpreter", ["/no/such/interpreter", "/bin/false"])
async def test_a_guard_that_does_not_start_is_an_error_for_the_model(
    tmp_path: Path, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(terminal: Terminal) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", interpreter)
            assert (await terminal.refusal("true")).startswith("the command could not be started: ")
        assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)


async def test_too_many_open_files_are_an_error_for_the_model_and_leave_none_open(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.run("true")
        for spare in range(4):
            with spare_descriptors(spare):
                assert "Too many open files" in await terminal.refusal("true")
        with spare_descriptors(4):
            assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)


# What is ended.

FAMILY = """
echo $$ > main
sleep 600 & echo $! > child
setsid sleep 600 & echo $! > session
(setsid bash -c 'echo $$ > daemon; exec sleep 600' </dev/null >/dev/null 2>&1 &)
(env -i /bin/bash -c 'echo $$ > bare; exec setsid sleep 600' &)
(trap '' TERM; bash -c 'echo $$ > deaf; exec sleep 600' &)
bash -c 'echo $$ > stopped; kill -STOP $$' &
"""
KIN = ("main", "child", "session", "daemon", "bare", "deaf", "stopped")


@pytest.mark.skipif(not ADOPTS, reason="needs a subreaper")
async def test_when_its_time_is_up_all_that_came_of_a_command_is_ended(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        command = await terminal.start(f"{FAMILY}\nwhile :; do sleep 600; done")
        pids = await terminal.written(*KIN)
        assert await terminal.processes.wait(command, 0) == (CommandEnd(-signal.SIGTERM), True)
        await eventually(lambda: alive(pids) == [])

    await at(tmp_path, scenario)


async def test_who_does_not_listen_is_killed(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        done = await terminal.run("trap '' TERM; while :; do sleep 600; done", timeout_seconds=0.2)
        assert (done.exit_code, done.timed_out) == (-signal.SIGKILL, True)

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="needs a subreaper")
async def test_cancelling_ends_all_that_came_of_a_command(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        running = asyncio.create_task(terminal.run(f"{FAMILY}\nwait"))
        pids = await terminal.written(*KIN)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await eventually(lambda: alive(pids) == [])

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="needs a subreaper")
async def test_closing_ends_what_commands_left_behind(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        await terminal.run(FAMILY)
        assert len(alive(await terminal.written(*KIN[1:]))) == len(KIN) - 1

    await at(tmp_path, scenario)
    assert alive(int((tmp_path / name).read_text()) for name in KIN) == []


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21])
async def test_a_command_can_be_cancelled_at_any_point(tmp_path: Path, steps: int) -> None:
    async def scenario(terminal: Terminal) -> None:
        running = asyncio.create_task(terminal.run("echo $$ > main; exec sleep 600"))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)
    written = [path.read_text() for path in tmp_path.glob("main")]
    assert alive(int(text) for text in written if text) == []


async def test_a_hundred_commands_at_a_time_do_not_mix(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        lines = [f"echo {number}; sleep 0.0{number % 10}; exit {number}" for number in range(100)]
        done = await asyncio.gather(*map(terminal.run, lines))
        assert [(one.output, one.exit_code) for one in done] == [(b"%d\n" % number, number) for number in range(100)]

    await at(tmp_path, scenario)


def test_a_command_does_not_begin_for_an_engine_that_died_after_its_request(tmp_path: Path) -> None:
    """It has asked for everything, and is gone before the guard is up."""
    control, guards = socket.socketpair()
    line, keepers = socket.socketpair()
    with guards:
        line.sendall(encode_request(["/bin/mkdir", "begun"], str(tmp_path), ENVIRONMENT))
        with keepers, open(os.devnull, "wb") as output:
            socket.send_fds(control, [b"!"], [keepers.fileno(), output.fileno()])
        line.close()
        control.close()
        guard = [sys.executable, "-I", "-S", "-c", module.BOOT, str(module.ROOT), str(guards.fileno()), "adopt"]
        subprocess.run(guard, pass_fds=[guards.fileno()], check=True, timeout=PATIENCE_SECONDS)
    assert list(tmp_path.iterdir()) == []


# Blows against those that keep it.


@pytest.mark.skipif(not ADOPTS, reason="needs a subreaper")
async def test_what_is_left_of_a_killed_keeper_is_killed(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        daemon = "(setsid bash -c 'echo $$ > daemon; exec sleep 600' &); until [ -s daemon ]; do sleep 0.01; done"
        assert "were killed" in await terminal.refusal(f"{daemon}; kill -KILL $PPID; sleep 600")
        pids = await terminal.written("daemon")
        await eventually(lambda: alive(pids) == [])
        assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="finds the guard through /proc")
async def test_a_killed_guard_takes_its_commands_along_and_the_next_command_gets_another(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        first = await guard_of(terminal)
        running = asyncio.create_task(terminal.run("echo $$ > main; setsid sleep 600 & echo $! > child; wait"))
        pids = await terminal.written("main", "child")
        os.kill(first, signal.SIGKILL)
        done = await running
        assert done.exit_code == -signal.SIGTERM
        await eventually(lambda: alive(pids) == [])
        second = await guard_of(terminal)
        assert second != first

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="finds the guard through /proc")
async def test_a_guard_that_was_killed_unnoticed_is_replaced_within_the_next_call(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        first = await guard_of(terminal)
        os.kill(first, signal.SIGKILL)
        until_dead(first)
        assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="needs a subreaper")
async def test_a_stopped_keeper_costs_the_guard_but_not_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(terminal: Terminal) -> None:
        blow = "echo $$ > main; until [ -e go ]; do sleep 0.01; done; kill -STOP $PPID; touch stopped; sleep 600"
        command = await terminal.start(blow)
        (tmp_path / "go").touch()
        await eventually((tmp_path / "stopped").exists)
        with monkeypatch.context() as patched:
            patched.setattr(module, "END_SECONDS", 0.2)
            assert await terminal.processes.wait(command, 0) == (CommandEnd(-signal.SIGKILL), True)
        assert await terminal.text("echo on") == "on\n"
        pids = terminal.pids("main")
        await eventually(lambda: alive(pids) == [])

    await at(tmp_path, scenario)


@pytest.mark.skipif(not ADOPTS, reason="finds the guard through /proc")
async def test_a_stopped_guard_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(terminal: Terminal) -> None:
        os.kill(await guard_of(terminal), signal.SIGSTOP)
        with monkeypatch.context() as patched:
            patched.setattr(module, "START_SECONDS", 0.2)
            assert "did not answer" in await terminal.refusal("true")
        assert await terminal.text("echo on") == "on\n"

    await at(tmp_path, scenario)


# Where orphans cannot be adopted.


async def test_without_a_subreaper_the_process_group_is_ended(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        line = "trap '' TERM; sleep 600 & echo $! > child; (sleep 600 & echo $! > orphan); echo $$ > main"
        command = await terminal.start(f"{line}; while :; do sleep 600; done")
        pids = await terminal.written("main", "child", "orphan")
        assert await terminal.processes.wait(command, 0) == (CommandEnd(-signal.SIGKILL), True)
        await eventually(lambda: alive(pids) == [])

    await at(tmp_path, scenario, may_adopt=False)


async def test_without_a_subreaper_what_was_left_in_the_group_ends_with_the_session(tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert await terminal.text("sleep 600 & echo $! > child; echo ok") == "ok\n"
        assert alive(terminal.pids("child"))

    await at(tmp_path, scenario, may_adopt=False)
    assert alive([int((tmp_path / "child").read_text())]) == []


# T-31.


@pytest.mark.skipif(not ADOPTS, reason="needs a subreaper and /proc")
def test_nothing_survives_the_engine_whatever_it_was_and_however_it_ended() -> None:
    seen = surviving_processes.run(surviving_processes.sample_pairs(), jobs=12)
    assert len(seen) == 40
    assert [one for one in seen if one.survivors] == []
