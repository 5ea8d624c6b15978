"""Make a forked process look like the launcher that it acts for.

`adopt_traits` takes over what the kernel knows of the launcher: limits, nice value, CPUs, umask, signals.
`adopt_streams` takes over what the launcher has sent: descriptors, words and environment.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # as `signal`, but without enumerations, which take most of the time
import fcntl
import marshal
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass

from parley.resident.admission import read_proc

LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


@dataclass(frozen=True)
class Launch:
    """What the client has started."""

    script: str
    words: list[str]
    environment: dict[bytes, bytes]


def adopt_traits(pid: int, status: dict[str, str]) -> None:
    """`status` is the launcher's /proc/PID/status. Raises OSError or ValueError if something is not permitted.

    The process becomes the leader of a session and process group of its own: it cannot join those of the launcher.
    """
    os.setsid()
    os.umask(int(status["Umask"], 8))
    os.sched_setaffinity(0, os.sched_getaffinity(pid))
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    if nice != os.getpriority(os.PRIO_PROCESS, 0):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    score = read_proc(f"/proc/{pid}/oom_score_adj")
    if score != read_proc("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "wb", 0) as ours:
            ours.write(score)
    for limit in LIMITS:
        value = resource.prlimit(pid, limit)
        if value != resource.getrlimit(limit):
            resource.setrlimit(limit, value)


def adopt_signals(status: dict[str, str]) -> None:
    """Ignore and block the signals that the launcher was started with; all others have their default action."""
    valid = _signal.valid_signals()
    ignored, blocked = (
        {number for number in valid if mask >> (number - 1) & 1}
        for mask in (int(status[name], 16) for name in ("SigIgn", "SigBlk"))
    )
    for number in valid - {_signal.SIGKILL, _signal.SIGSTOP}:
        action = _signal.SIG_IGN if number in ignored else _signal.SIG_DFL
        if _signal.getsignal(number) != action:
            _signal.signal(number, action)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)


def receive_launch(descriptors: list[int]) -> Launch:
    """Take the standard streams, the working directory and the rest. Raises OSError or ValueError."""
    stdin, stdout, stderr, directory, watched, started = descriptors
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.fchdir(directory)
    os.close(directory)
    end_with(watched)
    with open(started, "rb") as file:
        file.seek(0)
        return Launch(*marshal.load(file))


def end_with(watched: int) -> None:
    """Kill this process group as soon as the launcher, which holds the other end of this pipe, is gone.

    The kernel does it, so the session cannot mistake the death of its launcher for the end of its input.
    """
    fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(watched, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(watched, fcntl.F_SETFL, os.O_ASYNC)


def adopt_launch(launch: Launch) -> None:
    """Use the arguments and the environment of the launcher."""
    sys.argv[:] = [launch.script, *launch.words]
    os.environ.clear()
    os.environb.update(launch.environment)
    time.tzset()
