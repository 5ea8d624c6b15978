"""Run pytest as on a machine of its own: `python -m tests.run [arguments of pytest]`.

The tests see no variables but those of `tests/helpers/environment.py`. What they write to the temporary folder goes
into a folder that is removed at the end, unless a test has failed. What they leave running is killed: this process
adopts each process whose parent has died, of a worker that crashed, for example. (Linux only; elsewhere such a process
stays.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from types import FrameType

from parley.workspace.process.tree import SET_PDEATHSIG, adopt_orphans, descendants_of, prctl, send
from tests.helpers.environment import TEMPORARY, make_environment

FAILED = 1
"""The exit code of pytest if a test has failed."""
KILL_SECONDS = 10.0


def run(argv: list[str]) -> int:
    """Returns the exit code of pytest."""
    adopt_orphans()
    # The name is short because the paths of sockets are. What runs as another user works in the folder, too.
    folder = tempfile.mkdtemp(prefix="parley-", dir="/tmp")
    os.chmod(folder, 0o1777)
    command = [sys.executable, "-m", "pytest", f"--basetemp={folder}/t", *argv]
    environment = {**make_environment(os.environ), **dict.fromkeys(TEMPORARY, folder)}
    parent = os.getpid()

    def die_with_parent() -> None:
        prctl(SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(FAILED)

    pytest = subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)  # noqa: PLW1509  # there are no threads

    def forward(number: int, _: FrameType | None) -> None:
        send(pytest.pid, number)

    # A terminal sends SIGINT to pytest itself. An ignored signal stays ignored.
    for number, handler in ((signal.SIGINT, lambda *_: None), (signal.SIGTERM, forward), (signal.SIGHUP, forward)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    code = wait_for(pytest.pid)
    kill_rest()
    if code == FAILED:
        sys.stderr.write(f"the files of the tests are in {folder}/t\n")
    else:
        # Some tests make folders that are closed, or deeper than `shutil.rmtree` can follow.
        for remove in (("chmod", "-R", "u+rwX"), ("rm", "-rf")):
            subprocess.run([*remove, folder], stderr=subprocess.DEVNULL, check=False)
    return code


def wait_for(main: int) -> int:
    """Reap processes until the main one has ended; returns its exit code as a shell does."""
    while True:
        pid, status = os.wait()
        if pid == main:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def kill_rest() -> None:
    """Kill what is left. A process of another user may survive that, but must not keep the run from ending."""
    deadline = time.monotonic() + KILL_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            for pid in list(descendants_of(os.getpid())) if os.path.exists("/proc/self/stat") else []:
                send(pid, signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
