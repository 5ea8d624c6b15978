"""The program that runs in the sandbox: every attempt in a process of its own, in the order of the names.

    python -I -S tests/helpers/escape/run.py CONFIG [NAME ...]

An attempt has escaped if its mark appears outside: a canary is changed, a listener hears its name, or its output has a
secret or the word that `escaped` prints. Only the standard library, because it runs with any interpreter.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

SECONDS = 5
"""Far more than an attempt needs; what hangs is ended."""
ESCAPED = "ESCAPED"

Attempt = Callable[["Arena"], None]


class Arena:
    """The targets, and the ways to leave a mark. Every attempt has canaries of its own."""

    def __init__(self, config: dict[str, Any], name: str) -> None:
        self.name = name
        self.config = config
        self.workspace: str = config["workspace"]
        self.victim: int = config["victim"]
        """The process that stands for the engine."""

    @property
    def signal(self) -> int:
        """The signal of this attempt, which the victim reports."""
        return int(self.config["signals"][self.name])

    @property
    def terminal(self) -> str:
        """The path of a terminal for this attempt alone."""
        return str(self.config["terminals"][self.name])

    def file(self, place: str = "outside") -> str:
        """A file of this attempt outside, which exists."""
        return os.path.join(self.config["places"][place], self.name + ".txt")

    def new(self, place: str = "outside") -> str:
        """A path outside that does not exist."""
        return os.path.join(self.config["places"][place], self.name + ".new")

    def folder(self) -> str:
        """An empty folder outside."""
        return os.path.join(self.config["places"]["outside"], self.name + ".folder")

    def own(self, suffix: str = "") -> str:
        """A path in the workspace, where everything is allowed."""
        return os.path.join(self.workspace, self.name + suffix)

    def own_file(self, suffix: str = ".own") -> str:
        with open(self.own(suffix), "w") as file:
            file.write("mine")
        return self.own(suffix)

    def secret(self, key: str) -> str:
        """The path of a secret file."""
        return str(self.config["secrets"][key])

    def write(self, path: str, flags: int = os.O_WRONLY | os.O_CREAT) -> None:
        """Leave the mark in a file."""
        descriptor = os.open(path, flags, 0o644)
        os.write(descriptor, b"changed by " + self.name.encode())
        os.close(descriptor)

    def show(self, path: str) -> None:
        """Print a file, and with it its secret."""
        with open(path, "rb", buffering=0) as file:
            say(file.read(1 << 16).decode("latin-1"))

    def escaped(self, text: object = "") -> None:
        """Say that the attempt succeeded, where nothing else would show it."""
        say(f"{ESCAPED} {self.name} {text}")

    def call_out(self, connection: socket.socket) -> None:
        """Say the name to a listener."""
        connection.sendall(self.name.encode() + b"\n")


class Entry(NamedTuple):
    name: str
    run: Attempt
    needs: str
    """What it needs to work without a sandbox, if not every machine and user has it."""


ENTRIES: dict[str, Entry] = {}


def attempt(*, needs: str = "") -> Callable[[Attempt], Attempt]:
    def add(run: Attempt) -> Attempt:
        name = getattr(run, "__name__", "")
        assert name not in ENTRIES
        ENTRIES[name] = Entry(name, run, needs)
        return run

    return add


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: int | bytes | None) -> int:
    """Raises OSError."""
    plain = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *plain)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def connect(family: int, address: Any, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> socket.socket:
    found = socket.socket(family, kind, protocol)
    found.settimeout(2)
    found.connect(address)
    return found


def run_all(config: dict[str, Any], names: list[str]) -> None:
    """Run attempts one after the other. What one does to its own process ends with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # attempts send signals around
    for entry in [ENTRIES[name] for name in names]:
        say(f"TRY {entry.name}")
        child = os.fork()
        if child == 0:
            run_one(entry, Arena(config, entry.name))
        _, status = os.waitpid(child, 0)
        say(f"\nEND {entry.name} {status}")


def run_one(entry: Entry, arena: Arena) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        os.dup2(1, 2)
        entry.run(arena)
    except BaseException as exc:
        say(f"{type(exc).__name__}: {exc}")
    os._exit(0)
