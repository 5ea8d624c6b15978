"""Who holds a session, when processes come, die, race and steal."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from parley.errors import SessionBusy, SessionError
from parley.stores.lease import acquire, is_leased, process_start_time

HOLD = """
import sys
from pathlib import Path
from parley.stores.lease import acquire
from parley.errors import SessionBusy
try:
    lease = acquire(Path(sys.argv[1]), "s")
except SessionBusy:
    print("busy", flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate()


def test_a_second_opener_is_told_who_holds_the_session(tmp_path: Path) -> None:
    process = holder(tmp_path / "s")
    assert said(process) == "held"
    try:
        with pytest.raises(SessionBusy) as raised:
            acquire(tmp_path / "s", "s")
        assert f"in use by process {process.pid} on {os.uname().nodename} since 2" in str(raised.value)
    finally:
        end(process, signal.SIGKILL)


def test_a_session_is_free_as_soon_as_its_holder_is_killed(tmp_path: Path) -> None:
    process = holder(tmp_path / "s")
    assert said(process) == "held"
    end(process, signal.SIGKILL)

    acquire(tmp_path / "s", "s").release()
    assert list(tmp_path.iterdir()) == []


def test_of_many_who_race_for_a_session_exactly_one_gets_it(tmp_path: Path) -> None:
    racers = [holder(tmp_path / "s") for _ in range(8)]
    answers = sorted(said(racer) for racer in racers)
    for racer in racers:
        end(racer, signal.SIGKILL)

    assert answers == ["busy"] * 7 + ["held"]


def test_a_robbed_holder_knows_it_and_leaves_the_thiefs_lease_alone(tmp_path: Path) -> None:
    robbed = acquire(tmp_path / "s", "s")
    thief = acquire(tmp_path / "s", "s", steal=True)

    assert (robbed.is_ours(), thief.is_ours()) == (False, True)
    robbed.release()
    assert thief.is_ours()
    thief.release()


YIELD = HOLD.replace('"s")', '"s", takes=True, yields=True)').replace(
    "    sys.stdin.read()\n",
    "    sys.stdin.readline()\n    print(lease.may_write(), flush=True)\n    sys.stdin.read()\n",
)


def yielding(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", YIELD, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def may_write(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("write\n")
    process.stdin.flush()
    return said(process)


def test_a_holder_that_has_not_written_yields_to_a_child_of_the_same_parent(tmp_path: Path) -> None:
    first = yielding(tmp_path / "s")
    assert said(first) == "held"
    others = [yielding(tmp_path / "s")]
    assert said(others[0]) == "held"
    try:
        assert (may_write(first), may_write(others[0])) == ("False", "True")
        others.append(yielding(tmp_path / "s"))
        assert said(others[1]) == "busy"  # it has written
        with pytest.raises(SessionBusy):
            acquire(tmp_path / "s", "s", takes=True)
    finally:
        for process in (first, *others):
            end(process, signal.SIGKILL)


def test_a_holder_yields_to_no_other_program(tmp_path: Path) -> None:
    held = yielding(tmp_path / "s")
    assert said(held) == "held"
    try:
        with pytest.raises(SessionBusy):  # this process is its parent, not another child
            acquire(tmp_path / "s", "s", takes=True)
        insisting = holder(tmp_path / "s")
        assert said(insisting) == "busy"
        end(insisting, signal.SIGKILL)
        assert may_write(held) == "True"
    finally:
        end(held, signal.SIGKILL)


def test_a_lease_without_words_is_still_a_lease(tmp_path: Path) -> None:
    held = acquire(tmp_path / "s", "s")
    (tmp_path / "s").write_bytes(b"\xff not json")

    with pytest.raises(SessionBusy, match="another process"):
        acquire(tmp_path / "s", "s")
    held.release()


def test_the_lease_of_an_earlier_build_is_still_a_lease(tmp_path: Path) -> None:
    owner = {"pid": os.getpid(), "host": os.uname().nodename, "begun": process_start_time(os.getpid())}
    (tmp_path / "s").write_text(json.dumps(owner))
    assert is_leased(tmp_path / "s")


def test_the_lock_that_a_dead_holder_left_to_its_child_is_waited_for(tmp_path: Path) -> None:
    """As between the fork and the exec of a command, when the engine is killed just then."""
    lock = left_behind(tmp_path / "s")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(lock)

    with acquire(tmp_path / "s", "s", pause=pause) as held:
        assert held.is_ours()
    assert len(pauses) == 3


def test_a_dead_holders_lock_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    lock = left_behind(tmp_path / "s")
    pauses: list[float] = []

    with pytest.raises(SessionBusy):
        acquire(tmp_path / "s", "s", pause=pauses.append)
    assert sum(pauses) == pytest.approx(0.5)
    os.close(lock)


def left_behind(path: Path) -> int:
    """The descriptor of a lock whose holder, by its own words, is dead."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, json.dumps({"pid": dead.pid, "host": os.uname().nodename}).encode())
    return file


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SessionError, match=r"cannot write to the folder of sessions .*: Not a directory\. Make it"):
        acquire(tmp_path / "file" / "s", "s")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(SessionError, match="link is a symbolic link"):
        acquire(tmp_path / "link", "s")
    assert (tmp_path / "file").read_text() == ""


def test_a_full_disk_keeps_no_one_from_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with acquire(tmp_path / "lease", "s"), pytest.raises(SessionBusy, match="in use by another process"):
        acquire(tmp_path / "lease", "s")


def test_another_process_under_the_number_of_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with holder(path) as process:
        assert said(process) == "held"
        assert is_leased(path)
        process.kill()
    signed = json.loads(path.read_text())
    path.write_text(json.dumps({**signed, "pid": os.getpid()}))

    assert not is_leased(path)
    with acquire(path, "s"):
        assert is_leased(path)


RELEASE = """
import os, sys
from pathlib import Path
from parley.stores.lease import acquire

def at_removal(event, given):
    if event == "os.remove" and os.path.basename(os.fsdecode(given[0])) == "s":
        print("removing", flush=True)
        sys.stdin.readline()

lease = acquire(Path(sys.argv[1]), "s")
print("held", flush=True)
sys.stdin.readline()
sys.addaudithook(at_removal)
lease.release()
print("released", flush=True)
"""


def test_a_holder_that_lets_go_does_not_remove_a_thiefs_lease(tmp_path: Path) -> None:
    """The holder stops between its look at the file and the removal; a thief comes just then."""
    command = [sys.executable, "-c", RELEASE, str(tmp_path / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert said(process) == "held"
        print("go", file=process.stdin, flush=True)
        assert said(process) == "removing"
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                print("go", file=process.stdin, flush=True)
                assert said(process) == "released"

        thief = acquire(tmp_path / "s", "s", steal=True, pause=pause)
        if not pauses:
            print("go", file=process.stdin, flush=True)
            assert said(process) == "released"

        assert thief.is_ours()
        thief.release()


def test_where_folders_have_no_locks_a_lease_stays_and_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supported = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        supported(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    first = acquire(tmp_path / "s", "s")
    thief = acquire(tmp_path / "s", "s", steal=True)
    first.release()
    assert thief.is_ours()
    thief.release()

    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    with acquire(tmp_path / "s", "s") as later:
        assert later.is_ours()


def test_a_pipe_in_place_of_a_lease_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s")

    assert not is_leased(tmp_path / "s")
    with pytest.raises(SessionError, match="is a named pipe"):
        acquire(tmp_path / "s", "s")
