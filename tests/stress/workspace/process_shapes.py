"""Process trees that are hard to end; surviving_processes.py runs them as commands of the engine.

    python -I -S process_shapes.py SHAPE PIDS stay|leave

Every process of a shape appends its pid and its start time to the file PIDS. When all of them
are there, the line `ready` follows, and the process that was started stays or leaves. None
lives longer than LONGEST_SECONDS, whatever goes wrong.

Standard library only, and little of it: this is started thousands of times.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

LONGEST_SECONDS = 60.0
BEGUN = time.monotonic()
SHELL_ENROLS = 'IFS= read -r s < /proc/$$/stat; set -- "$0" ${s##*) }; echo "$$ ${21}" >> "$0"; '
"""The same as `enrol`, for a process that is a shell; $0 is the file."""


class Stage:
    """The file in which all processes of a shape enrol."""

    def __init__(self, path: str) -> None:
        self.path = path

    def enrol(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19]
        self.write(b"%d %s\n" % (os.getpid(), started))

    def write(self, line: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, line)
        os.close(file)

    def wait_for(self, count: int) -> None:
        while time.monotonic() < BEGUN + LONGEST_SECONDS:
            with open(self.path, "rb") as file:
                if file.read().count(b"\n") >= count:
                    return
            time.sleep(0.002)

    def live(self) -> None:
        """Enrol and stay. Never returns."""
        self.enrol()
        rest()


def rest() -> None:
    while time.monotonic() < BEGUN + LONGEST_SECONDS:
        time.sleep(1)
    os._exit(0)


def fork(then: Callable[[], None]) -> int:
    """A child that does this and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            then()
        finally:
            os._exit(0)
    return pid


def daemon(then: Callable[[], None]) -> None:
    """Fork twice with a session in between: no one's child in no one's session."""

    def middle() -> None:
        os.setsid()
        fork(then)

    os.waitpid(fork(middle), 0)


def stop_listening() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)


def session(stage: Stage) -> int:
    def act() -> None:
        os.setsid()
        stage.live()

    fork(act)
    return 1


def daemons(stage: Stage) -> int:
    daemon(stage.live)
    return 1


def silent_daemon(stage: Stage) -> int:
    def act() -> None:
        os.chdir("/")
        os.closerange(0, 1024)
        stage.live()

    daemon(act)
    return 1


def deaf(start: Callable[[Callable[[], None]], object]) -> Callable[[Stage], int]:
    """Whoever is asked to end continues."""

    def act(stage: Stage) -> int:
        def live() -> None:
            stop_listening()
            stage.live()

        start(live)
        return 1

    return act


def nohup(stage: Stage) -> int:
    line = f"{SHELL_ENROLS} exec sleep {LONGEST_SECONDS}"
    fork(lambda: os.execvp("nohup", ["nohup", "sh", "-c", line, stage.path]))
    return 1


def exec_chain(stage: Stage) -> int:
    line = f"{SHELL_ENROLS} exec sleep {LONGEST_SECONDS}"
    links = ["sh", "-c", 'exec "$0" "$@"'] * 5
    fork(lambda: os.execvp("setsid", ["setsid", *links, "sh", "-c", line, stage.path]))
    return 1


def deep(stage: Stage) -> int:
    def grow(levels: int) -> None:
        stage.enrol()
        if levels > 1:
            fork(lambda: grow(levels - 1))
        rest()

    fork(lambda: grow(30))
    return 30


def wide(stage: Stage) -> int:
    for _ in range(30):
        fork(stage.live)
    return 30


def stopped(stage: Stage) -> int:
    def act() -> None:
        stage.enrol()
        os.kill(os.getpid(), signal.SIGSTOP)
        rest()

    for _ in range(3):
        fork(act)
    return 3


def stopped_daemon(stage: Stage) -> int:
    def act() -> None:
        stop_listening()
        stage.enrol()
        os.kill(os.getpid(), signal.SIGSTOP)
        rest()

    daemon(act)
    return 1


def zombies(stage: Stage) -> int:
    """Children that ended, of a parent that does not care."""

    def act() -> None:
        for _ in range(5):
            fork(stage.enrol)
        stage.live()

    daemon(act)
    return 6


def runner(stage: Stage) -> int:
    """Never in the same process for long, and deaf: each forks the next one and ends."""

    def run() -> None:
        stop_listening()
        while time.monotonic() < BEGUN + LONGEST_SECONDS:
            stage.enrol()
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.001)

    fork(run)
    return 20


def bare(stage: Stage) -> int:
    """Without environment, name, session or parent of its own."""
    line = f"{SHELL_ENROLS} exec -a kworker sleep {LONGEST_SECONDS}"
    daemon(lambda: os.execve("/bin/bash", ["-", "-c", line, stage.path], {}))
    return 1


def orphan(stage: Stage) -> int:
    """Its parent is killed by it, all of a sudden."""

    def act() -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        stage.live()

    def parent() -> None:
        fork(act)
        rest()

    fork(parent)
    return 1


def supervisor(stage: Stage) -> int:
    """Starts its child again whenever it ends, and does not listen."""

    def child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stage.live()

    def act() -> None:
        stop_listening()
        stage.enrol()
        for _ in range(200):
            fork(child)
            os.wait()

    daemon(act)
    return 2


def phoenix(stage: Stage) -> int:
    """Told to end, it becomes a daemon and ends."""

    def burn(lives: int) -> None:
        def rise(number: int, frame: object) -> None:
            daemon(lambda: burn(lives - 1))
            os._exit(0)

        if lives:
            signal.signal(signal.SIGTERM, rise)
        stage.live()

    fork(lambda: burn(5))
    return 1


def ancestor(pid: int, above: int) -> int:
    for _ in range(above):
        with open(f"/proc/{pid}/stat", "rb") as file:
            pid = int(file.read().rpartition(b")")[2].split()[1])
    return pid


def against(above: int, number: int) -> Callable[[Stage], int]:
    """A daemon, and a blow against those that keep the command: 2 above us is the keeper, 3 the guard."""

    def act(stage: Stage) -> int:
        victim = ancestor(os.getpid(), above)
        daemon(stage.live)
        stage.wait_for(2)
        stage.write(b"ready\n")
        os.kill(victim, number)
        return 0

    return act


SHAPES: dict[str, Callable[[Stage], int]] = {
    "session": session,
    "daemon": daemons,
    "silent-daemon": silent_daemon,
    "deaf": deaf(fork),
    "deaf-daemon": deaf(daemon),
    "nohup": nohup,
    "exec-chain": exec_chain,
    "deep": deep,
    "wide": wide,
    "stopped": stopped,
    "stopped-daemon": stopped_daemon,
    "zombies": zombies,
    "runner": runner,
    "bare": bare,
    "orphan": orphan,
    "supervisor": supervisor,
    "phoenix": phoenix,
    "kills-keeper": against(2, signal.SIGKILL),
    "stops-keeper": against(2, signal.SIGSTOP),
    "kills-guard": against(3, signal.SIGKILL),
}
"""Each starts its processes and says how many will enrol, or 0 if it has said `ready` itself."""


def main(shape: str, pids: str, then: str) -> None:
    stage = Stage(pids)
    stage.enrol()
    if count := SHAPES[shape](stage):
        stage.wait_for(count + 1)
        stage.write(b"ready\n")
    if then == "stay":
        rest()


if __name__ == "__main__":
    main(*sys.argv[1:])
