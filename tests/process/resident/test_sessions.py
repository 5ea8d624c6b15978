"""A session that a resident engine runs is like one that its client started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.patience import wait_until
from tests.helpers.process import read_proc
from tests.process.resident.conftest import Resident, children, session_of, wait_for_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="`parley resident` works only on Linux")
BASH = ("--model", "offline", "--allowedTools", "Bash", "-p", "--")
SHOW_TRAITS = (
    'call Bash {"command": "umask; nice; ulimit -n; ulimit -Hn; pwd; nproc; cat /proc/$PPID/oom_score_adj"}\nshow'
)


def test_a_session_runs_in_the_server_and_names_the_process_that_the_client_started(resident: Resident) -> None:
    server = resident.start()
    session = resident.open()
    assert session.initialize()["pid"] == session.process.pid
    assert session_of(server) != session.process.pid
    session.prompt("say Hi")
    assert session.receive("result")["result"] == "Hi"
    (lease,) = (resident.folder / ".claude" / "leases").iterdir()
    assert json.loads(lease.read_text())["pid"] == session.process.pid
    assert session.close() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "--model", "offline", "say Hi"),
        ("-p", "--model", "offline", "--output-format", "json", "--no-such-option", "say Hi"),
        ("-p", "--model", "no-such-model", "say Hi"),
        ("-p", "--resume", "no-such-session", "say Hi"),
        ("-p", "--input-format", "stream-json"),
        ("--help",),
        ("-p",),
    ],
)
def test_output_and_exit_code_are_those_of_a_cold_start(resident: Resident, words: tuple[str, ...]) -> None:
    server = resident.start()
    before = len(resident.servers()), resident.servers()[0]["served"]
    cold, warm = resident.run(*words, resident="0"), resident.run(*words)
    assert (warm.returncode, warm.stderr) == (cold.returncode, cold.stderr)
    assert [line for line in warm.stdout.splitlines() if b"uuid" not in line] == [
        line for line in cold.stdout.splitlines() if b"uuid" not in line
    ]
    assert [(one["pid"], one["served"]) for one in resident.servers()] == [(server, before[1] + 2)]


def test_limits_and_environment_are_those_of_the_launcher(resident: Resident) -> None:
    resident.start()
    prepare = 'umask 027; ulimit -n 333; echo 300 > /proc/self/oom_score_adj; exec nice -n 5 taskset -c 0 "$@"'
    via = ("sh", "-c", prepare, "sh")
    cold, warm = resident.run(*BASH, SHOW_TRAITS, via=via, resident="0"), resident.run(*BASH, SHOW_TRAITS, via=via)
    assert warm.stdout == cold.stdout
    assert f"027\n{min(os.nice(0) + 5, 19)}\n333\n333\n".encode() in warm.stdout
    call = 'call Bash {"command": "echo $GREETING ${PARLEY_RESIDENT-unset} $TZ; date +%Z"}\nshow'
    shown = resident.run(*BASH, call, GREETING="hello", TZ="Asia/Tokyo").stdout
    assert b"hello unset Asia/Tokyo\nJST" in shown


def test_ignored_and_blocked_signals_are_those_of_the_launcher(resident: Resident) -> None:
    server = resident.start()
    prepare = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); os.execv(sys.argv[1], sys.argv[1:])"
    )
    session = resident.open(via=(sys.executable, "-c", prepare))
    session.initialize()
    lines = Path(f"/proc/{session_of(server)}/status").read_text().splitlines()
    masks = {
        line.split(":")[0]: int(line.split()[1], 16) for line in lines if line.startswith("Sig") and "Q" not in line
    }
    assert masks["SigIgn"] >> (signal.SIGHUP - 1) & 1
    assert masks["SigIgn"] >> (signal.SIGUSR1 - 1) & 1
    assert masks["SigBlk"] == 1 << (signal.SIGUSR2 - 1)
    assert session.close() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0), (signal.SIGHUP, 143)])
def test_signals_are_forwarded(resident: Resident, number: int, code: int) -> None:
    server = resident.start()
    session = resident.open()
    session.initialize()
    session_of(server)
    session.process.send_signal(number)
    assert session.process.wait(60) == code


def test_a_session_that_is_killed_kills_its_launcher_with_the_same_signal(resident: Resident) -> None:
    server = resident.start()
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1):
        session = resident.open()
        session.initialize()
        os.kill(session_of(server), number)
        assert session.process.wait(60) == -number


def test_a_launcher_that_is_killed_ends_its_session_and_commands_at_once(resident: Resident) -> None:
    server = resident.start()
    session = resident.open("--allowedTools", "Bash")
    session.initialize()
    session.prompt('call Bash {"command": "echo $$ > started; exec sleep 600"}')
    started = resident.folder / "started"
    wait_until(lambda: started.exists() and started.read_text().strip(), "the command")
    pid = session_of(server)
    session.process.kill()
    session.process.wait()
    wait_for_end(pid)
    wait_for_end(int(started.read_text()))
    assert b'"result"' not in session.process.stdout.read()  # type: ignore[union-attr]  # it is a pipe


def test_a_stop_and_a_continue_reach_the_session(resident: Resident) -> None:
    server = resident.start()
    session = resident.open()
    session.initialize()
    pid = session_of(server)
    session.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: {state(pid), state(session.process.pid)} == {"T"}, "both to stop")
    session.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "T" not in (state(pid), state(session.process.pid)), "both to continue")
    session.prompt("say Hi")
    assert session.receive("result")["result"] == "Hi"
    assert session.close() == 0


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_killed_server_leaves_its_sessions_running(resident: Resident) -> None:
    server = resident.start()
    session = resident.open()
    session.initialize()
    pid = session_of(server)
    os.kill(server, signal.SIGKILL)
    session.prompt("say Hi")
    assert session.receive("result")["result"] == "Hi"
    assert session.close() == 0
    wait_for_end(pid)


def test_a_stopped_server_delays_a_session_but_does_not_hold_it(resident: Resident) -> None:
    server = resident.start()
    os.kill(server, signal.SIGSTOP)
    session = resident.open()
    assert session.initialize()["pid"] == session.process.pid
    assert session.close() == 0
    os.kill(server, signal.SIGCONT)
    session = resident.open()
    session.initialize()
    session_of(server)
    assert session.close() == 0


def test_sessions_at_once_have_ids_of_their_own(resident: Resident) -> None:
    resident.start()
    sessions = [resident.open() for _ in range(4)]
    for session in sessions:
        session.prompt("say Hi")
    found = {session.receive("result")["session_id"] for session in sessions}
    assert len(found) == 4
    assert [session.close() for session in sessions] == [0] * 4


def test_secrets_are_in_no_command_line_and_not_in_the_server(resident: Resident) -> None:
    server = resident.start()
    session = resident.open("--api-key", "secret-word", stderr=subprocess.DEVNULL, ANTHROPIC_API_KEY="secret-variable")
    session.initialize()
    processes = [server, session_of(server), session.process.pid]
    for pid in processes:
        for name in ("cmdline", "environ"):
            assert b"secret-" not in read_proc(pid, name), (pid, name)
    assert not memory_has(server, b"secret-variable")
    assert session.close() == 0
    assert children(server) == []


def memory_has(pid: int, text: bytes) -> bool:
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            bounds, mode, *_ = line.split()
            if mode.startswith("rw") and "[v" not in line:
                start, end = (int(bound, 16) for bound in bounds.split("-"))
                memory.seek(start)
                if text in memory.read(end - start):
                    return True
    return False
