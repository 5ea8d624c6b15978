"""Commands in a remote workspace: their output, their end, and what a lost connection does to them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.base import Scope
from parley.workspace.process.processes import CommandOutput, Finished, PreparedCommand
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.client import RemoteWorkspace, connect_workspace
from parley.workspace.remote.link import LinkSettings, WorkspaceUnavailable
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.remote_workspace import TOKEN, ServerThread

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def prepare(script: str, cwd: object, call: str = "") -> PreparedCommand:
    argv = ["/bin/bash", "--norc", "-c", script]
    return PreparedCommand(argv=argv, cwd=str(cwd), environment=ENVIRONMENT, tool_use_id=call)


async def run(remote: RemoteWorkspace, script: str, keep_bytes: int = 30_000) -> Finished:
    path = Path(remote.welcome.own_folder, "tool-results", "out.txt")
    output = CommandOutput(keep_bytes, lambda: path, None, remote.processes.outputs)
    return await remote.processes.run(prepare(script, remote.welcome.cwd), PATIENCE_SECONDS, output)


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_the_whole_of_a_long_output_is_in_a_file_on_the_server(server: ServerThread) -> None:
    done = await run(server.connect(), "seq 1 300000; exit 3")
    assert (done.exit_code, done.problem) == (3, "")
    assert done.output == b"".join(b"%d\n" % number for number in range(1, 300_001))[:30_000]
    assert done.spilled_to is not None
    assert Path(done.spilled_to).read_text().split() == [str(number) for number in range(1, 300_001)]


async def test_a_command_whose_output_nobody_takes_waits(server: ServerThread, root: Path) -> None:
    remote, taken = server.connect(), 0

    def take(data: bytes) -> None:
        nonlocal taken
        taken += len(data)

    command = await remote.processes.start(prepare("head -c 20000000 /dev/zero; touch done", root), take)
    # The engine's loop is busy, so nothing is taken.
    await asyncio.to_thread(lambda: None)
    time.sleep(0.5)  # this is the loop that does not take anything
    assert not (root / "done").exists()
    end = await command.ended
    assert (end.exit_code, taken) == (0, 20_000_000)


async def test_a_cancelled_command_is_stopped_with_its_children(server: ServerThread, root: Path) -> None:
    remote = server.connect()
    task = asyncio.create_task(run(remote, "sleep 1000 & echo $! $$ > pids; wait"))
    await until(lambda: (root / "pids").exists() and len((root / "pids").read_text().split()) == 2)
    pids = [int(pid) for pid in (root / "pids").read_text().split()]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not any(map(is_running, pids)))


async def test_a_command_reads_its_input_and_its_errors_are_apart(server: ServerThread, root: Path) -> None:
    remote, out, errors = server.connect(), bytearray(), bytearray()
    command = await remote.processes.start(prepare("cat; echo oops >&2", root), out.extend, errors.extend)
    assert command.feed is not None
    text = b"line\n" * 100_000
    command.feed.put(text)
    command.feed.finish()
    assert (await command.ended).exit_code == 0
    assert (bytes(out), bytes(errors)) == (text, b"oops\n")
    await command.output_ended


async def test_a_lost_connection_loses_nothing(server: ServerThread, root: Path) -> None:
    """It is cut again and again while a command writes and files are written: each change is made once."""
    remote = server.connect()
    scope = Scope(folders=(str(root),))

    async def cut() -> None:
        for _ in range(8):
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.drop_connections)

    def write_files() -> None:
        for number in range(200):
            remote.files.write(str(root / f"{number}.txt"), b"x" * number, scope, replacing=None)

    cutting = asyncio.create_task(cut())
    writing = asyncio.create_task(asyncio.to_thread(write_files))
    done = await run(remote, "for i in $(seq 1 40); do seq 1 2000; sleep 0.01; done", keep_bytes=10_000_000)
    await asyncio.gather(cutting, writing)
    assert done.output == b"".join(b"%d\n" % number for number in range(1, 2001)) * 40
    assert {path.name for path in root.iterdir()} == {f"{number}.txt" for number in range(200)}


async def test_another_engine_takes_a_session_over_and_learns_what_became_of_a_command(
    server: ServerThread, root: Path
) -> None:
    first = server.connect(session="s", epoch=1)
    command = await first.processes.start(
        prepare("echo begun; echo $$ > pid; sleep 1000", root, "toolu_1"), lambda data: None
    )
    await until(lambda: (root / "pid").exists() and bool((root / "pid").read_text()))
    pid = int((root / "pid").read_text())
    second = await asyncio.to_thread(lambda: server.connect(session="s", epoch=2))
    assert not is_running(pid)
    known = await asyncio.to_thread(second.processes.find_earlier, "toolu_1")
    assert "ended the command, because its engine was gone" in known
    assert "begun" in known
    assert await asyncio.to_thread(second.processes.find_earlier, "toolu_2") == ""
    # The first engine does not get the session back, and is told why.
    assert "taken the session over" in (await command.ended).error
    with pytest.raises(ToolError, match="taken the session over"):
        await asyncio.to_thread(lambda: first.files.peek(str(root / "pid"), Scope(anywhere=True)))
    with pytest.raises(WorkspaceUnavailable, match="epoch 2, this engine has epoch 1"):
        await asyncio.to_thread(lambda: server.connect(session="s", epoch=1))


async def test_a_command_that_ended_while_its_engine_was_gone_is_known_to_the_next(tmp_path: Path, root: Path) -> None:
    server = ServerThread(root, tmp_path / "state", grace_seconds=60)
    first = server.connect(session="s")
    await first.processes.start(prepare("echo all done; exit 7", root, "toolu_1"), lambda data: None)
    first.close()
    await until(lambda: server.has_ended("s"))
    second = await asyncio.to_thread(lambda: server.connect(session="s"))
    known = await asyncio.to_thread(second.processes.find_earlier, "toolu_1")
    server.close()
    assert "ended with exit code 7" in known
    assert "all done" in known


async def test_after_the_grace_period_a_command_is_ended(tmp_path: Path, root: Path) -> None:
    server = ServerThread(root, tmp_path / "state", grace_seconds=0.2)
    remote = server.connect()
    await remote.processes.start(prepare("echo $$ > pid; sleep 1000", root), lambda data: None)
    await until(lambda: (root / "pid").exists() and bool((root / "pid").read_text()))
    remote.close()
    await until(lambda: not is_running(int((root / "pid").read_text())))
    server.close()


async def test_a_server_that_was_restarted_fails_what_it_may_have_done_and_serves_again(
    server: ServerThread, root: Path
) -> None:
    (root / "a").write_text("a")
    remote, reports = server.connect(), list[str]()
    remote.link.watch(reports.append)
    running = asyncio.create_task(run(remote, "sleep 1000"))
    await until(lambda: bool(remote.processes._remote))
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    with pytest.raises(ToolError, match="was restarted during this call"):
        await running
    found = await asyncio.to_thread(lambda: remote.files.read(str(root / "a"), Scope(anywhere=True)))
    assert found.data == b"a"
    assert "does not answer" in reports[0]
    assert "connected again" in reports[-1]


async def test_a_killed_server_takes_its_commands_with_it_and_the_engine_is_told(tmp_path: Path, root: Path) -> None:
    token, address = tmp_path / "token", tmp_path / "s"
    token.write_text(TOKEN)
    token.chmod(0o600)
    argv = [sys.executable, "-m", "parley", "workspace", "--listen", f"unix:{address}", "--root", str(root)]
    argv += ["--token-file", str(token), "--state", str(tmp_path / "state")]
    server = subprocess.Popen(argv, stderr=subprocess.PIPE)
    assert server.stderr is not None
    assert b"listening" in await asyncio.to_thread(server.stderr.readline)
    settings = LinkSettings(address=WorkspaceAddress(path=str(address)), token=TOKEN, wait_seconds=0.5)
    remote = await asyncio.to_thread(lambda: connect_workspace(settings, "s"))
    running = asyncio.create_task(run(remote, "echo $$ > pid; sleep 1000"))
    await until(lambda: (root / "pid").exists() and bool((root / "pid").read_text()))
    server.send_signal(signal.SIGKILL)
    server.communicate()
    await until(lambda: not is_running(int((root / "pid").read_text())))
    with pytest.raises(ToolError, match=rf"the workspace at unix:{address} does not answer"):
        await asyncio.to_thread(lambda: remote.files.peek(str(root / "pid"), Scope(anywhere=True)))
    remote.close()
    with pytest.raises(ToolError, match="the workspace at"):
        await running
