"""The life of a server, and when a session is started cold."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.patience import wait_until
from tests.helpers.tty import run_at_terminal
from tests.process.resident.conftest import PARLEY, Resident, children, session_of, wait_for_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="`parley resident` works only on Linux")
FILTER = """
import ctypes, os, sys
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
allow_all = ctypes.c_uint64(0x7FFF000000000006)
program = Program(1, ctypes.cast(ctypes.pointer(allow_all), ctypes.c_void_p))
if ctypes.CDLL(None).prctl(22, 2, ctypes.byref(program), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
    sys.exit("not permitted")
os.execvp(sys.argv[1], sys.argv[1:])
"""
UNPRIVILEGED = ("setpriv", "--bounding-set", "-sys_resource")
BASH = ("--model", "offline", "--allowedTools", "Bash")
OFFLINE = ("-p", "--model", "offline", "say Hi")


@pytest.fixture
def resident(tmp_path: Path) -> object:
    (tmp_path / "run").mkdir(mode=0o700)
    resident = Resident(tmp_path, PARLEY)
    yield resident
    resident.close()


def test_the_first_session_starts_a_server_for_the_next(resident: Resident) -> None:
    session = resident.open()
    session.initialize()
    (server,) = wait_until(resident.servers, "the server")
    assert session.close() == 0
    session = resident.open()
    session.initialize()
    assert session_of(server["pid"])
    assert session.close() == 0


def test_many_first_sessions_start_one_server(resident: Resident) -> None:
    sessions = [resident.open() for _ in range(6)]
    for session in sessions:
        session.initialize()
    wait_until(resident.servers, "the server")
    assert [session.close() for session in sessions] == [0] * 6
    assert len(resident.servers()) == 1


def test_a_server_without_sessions_ends(resident: Resident) -> None:
    resident.environment["PARLEY_RESIDENT_IDLE_SECONDS"] = "0.3"
    resident.command("start")
    wait_until(lambda: not list(resident.runtime.glob("*.sock")), "the end of the server")
    assert resident.servers() == []


def test_a_stopped_server_finishes_its_sessions_while_another_starts(resident: Resident) -> None:
    server = resident.start()
    session = resident.open()
    session.initialize()
    session_of(server)
    assert "stopped" in resident.command("stop")
    other = resident.start()
    assert other != server
    session.prompt("say Hi")
    assert session.receive("result")["result"] == "Hi"
    assert session.close() == 0
    wait_for_end(server)
    assert [one["pid"] for one in resident.servers()] == [other]


def test_a_stale_socket_is_replaced(resident: Resident) -> None:
    server = resident.start()
    os.kill(server, signal.SIGKILL)
    wait_for_end(server)
    assert list(resident.runtime.glob("*.sock"))
    assert resident.run(*OFFLINE).stdout == b"Hi\n"
    assert wait_until(resident.servers, "the next server")[0]["pid"] != server


def test_interpreters_that_differ_have_servers_of_their_own(resident: Resident) -> None:
    first = resident.start()
    resident.environment["PYTHONDONTWRITEBYTECODE"] = "1"
    resident.command("start")
    assert len(resident.servers()) == 2
    session = resident.open()
    session.initialize()
    assert children(first) == []
    assert session.close() == 0


def test_a_folder_that_others_can_enter_is_not_used(resident: Resident) -> None:
    resident.runtime.mkdir()
    resident.runtime.chmod(0o755)
    assert resident.run(*OFFLINE).stdout == b"Hi\n"
    assert not list(resident.runtime.iterdir())
    done = subprocess.run([PARLEY, "resident", "status"], env=resident.environment, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"mode 700" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_socket_of_another_user_receives_nothing(resident: Resident) -> None:
    server = resident.start()
    name = next(resident.runtime.glob("*.sock"))
    os.kill(server, signal.SIGKILL)
    wait_for_end(server)
    name.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"/proc/self/fd/{os.open(resident.runtime, os.O_RDONLY)}/{name.name}")
    ready, told = os.pipe()
    if (child := os.fork()) == 0:
        os.setuid(65534)
        listener.listen()  # the kernel notes who listens
        os.write(told, b"listening")
        connection = listener.accept()[0]
        os.write(told, connection.recv(100_000) or b"nothing")
        os._exit(0)
    assert os.read(ready, 100) == b"listening"
    listener.close()
    assert resident.run(*OFFLINE, ANTHROPIC_API_KEY="secret").stdout == b"Hi\n"
    assert os.read(ready, 100_000) == b"nothing"
    os.waitpid(child, 0)
    name.unlink()


@pytest.mark.parametrize(
    ("via", "reason"),
    [
        (("setpriv", "--no-new-privs"), "NoNewPrivs"),
        (("setpriv", "--groups", "12345"), "Groups"),
        (("setpriv", "--bounding-set", "-chown"), "CapPrm"),
        (("unshare", "--uts"), "namespace uts"),
        (("unshare", "--net"), "namespace net"),
        (("unshare", "--mount"), "namespace mnt"),
        (("setarch", "--addr-no-randomize"), "personality"),
        (("sh", "-c", 'echo 0x7 > /proc/self/coredump_filter; exec "$@"', "sh"), "coredump_filter"),
        (("chrt", "--batch", "0"), "scheduling policy"),
        ((sys.executable, "-c", FILTER), "Seccomp"),
    ],
)
def test_a_launcher_that_is_confined_differently_starts_cold(
    resident: Resident, via: tuple[str, ...], reason: str
) -> None:
    if subprocess.run([*via, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"not permitted here: {via[0]}")
    if reason == "CapPrm" and os.geteuid() != 0:
        pytest.skip("only root has capabilities to drop; setpriv does not report that it drops none")
    server = resident.start()
    session = resident.open(via=via)
    session.initialize()
    wait_until(lambda: children(server) == [], "the refusal")
    assert refusal(resident, via).startswith(reason)
    assert session.close() == 0


def refusal(resident: Resident, via: tuple[str, ...]) -> str:
    """Why the only server refuses a session that is started in this way."""
    status = [*via, PARLEY, "resident", "status", "--json"]
    shown = subprocess.run(status, env=resident.environment, capture_output=True, check=True).stdout
    reason: str = json.loads(shown)["servers"][0]["refusal"]
    return reason


@pytest.mark.parametrize(
    ("of_server", "of_launcher", "reason"),
    [
        # Both have filters, but it is not visible whether they are the same.
        (("setpriv", "--no-new-privs"), ("setpriv", "--no-new-privs"), "NoNewPrivs differs from that of process 1"),
        ((sys.executable, "-c", FILTER), (sys.executable, "-c", FILTER), "Seccomp differs from that of process 1"),
        (
            ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *UNPRIVILEGED),
            UNPRIVILEGED,
            "ValueError: not allowed to raise",
        ),
        (("nice", "-n", "5"), ("nice", "-n", "5"), ""),
    ],
)
def test_a_server_that_is_confined_itself(
    resident: Resident, of_server: tuple[str, ...], of_launcher: tuple[str, ...], reason: str
) -> None:
    if subprocess.run([*of_server, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"not permitted here: {of_server[0]}")
    subprocess.run(
        [*of_server, PARLEY, "resident", "start"], env=resident.environment, stdout=subprocess.DEVNULL, check=True
    )
    found = refusal(resident, of_launcher)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
    assert resident.run(*OFFLINE, via=of_launcher).stdout == b"Hi\n"


def test_a_terminal_and_named_descriptors_need_a_cold_start(resident: Resident) -> None:
    server = resident.start()
    before = resident.servers()[0]["served"]
    environment = {**resident.environment, "PARLEY_RESIDENT": "1"}
    shown, code = run_at_terminal([PARLEY, *OFFLINE], environment, resident.folder)
    assert ("Hi" in shown, code) == (True, 0)
    read, write = os.pipe()
    os.write(write, b'{"env": {"GREETING": "hello"}}')
    os.close(write)
    call = 'call Bash {"command": "echo $GREETING"}\nshow'
    command = [PARLEY, *BASH, "--settings", f"/dev/fd/{read}", "-p", "--", call]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[read], check=True
    )
    os.close(read)
    assert b"hello" in done.stdout
    (found,) = resident.servers()
    assert (found["pid"], found["served"]) == (server, before + 1)


def test_a_server_does_not_hold_descriptors_of_the_client(resident: Resident) -> None:
    read, write = os.pipe()
    environment = {**resident.environment, "PARLEY_RESIDENT": "1"}
    for _ in range(2):
        done = subprocess.run(
            [PARLEY, *OFFLINE],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=[write],
            check=True,
        )
        assert done.stdout == b"Hi\n"
        assert wait_until(resident.servers, "the server")
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)


def test_an_idle_time_that_is_no_number_is_reported(resident: Resident) -> None:
    resident.environment["PARLEY_RESIDENT_IDLE_SECONDS"] = "soon"
    done = subprocess.run([PARLEY, "resident", "start"], env=resident.environment, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"PARLEY_RESIDENT_IDLE_SECONDS is 'soon'; it must be a number of seconds" in done.stderr
    assert resident.run(*OFFLINE).stdout == b"Hi\n"


def test_a_value_that_is_not_known_is_reported(resident: Resident) -> None:
    done = resident.run(*OFFLINE, resident="yes")
    assert (done.stdout, done.stderr.count(b"PARLEY_RESIDENT must be 0 or 1")) == (b"Hi\n", 1)
    assert not resident.runtime.exists()


def test_doctor_reports_the_server(resident: Resident) -> None:
    def check() -> str:
        environment = {**resident.environment, "PARLEY_RESIDENT": "1"}
        done = subprocess.run(
            [PARLEY, "doctor"], env=environment, cwd=resident.folder, capture_output=True, check=False
        )
        return next(line for line in done.stdout.decode().splitlines() if " resident: " in line)

    assert "no resident engine is running" in check()
    resident.start()
    assert "runs sessions that are started from here" in check()
