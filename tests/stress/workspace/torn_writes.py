"""Kill the writer at every system call, and at random times.

    python -m tests.stress.workspace.torn_writes --kills 500 --seed 1

A child does one job (create, replace, edit twice, rewind) and dies just before its N-th call, for every N;
or, where that call writes, after half of it. Then the file must be exactly the old or the new one, and a new
process of the same session must be able to write it, rewind it, and leave nothing of ours lying about. The
second part kills a child that writes large files with SIGKILL, at random times.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from parley.workspace import syscalls
from parley.workspace.base import Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles

OS_CALLS = (
    "access", "close", "dup", "fchmod", "fchown", "fdatasync", "fstat", "fsync", "ftruncate", "lseek", "mkdir", "open",
    "read", "rename", "stat", "truncate", "unlink", "write",
)  # fmt: skip
KERNEL_CALLS = ("openat2", "rename_to_free_name")
DIED = 77
OLD, NEW, NEXT = b"old\n" * 5_000, b"new\n" * 6_000, b"next\n"


class Workplace:
    """A session's files and its history, in a folder of their own."""

    def __init__(self, base: Path) -> None:
        self.root, self.history = base / "root", base / "history"
        self.root.mkdir(parents=True, exist_ok=True)
        self.reach = Scope(folders=(str(self.root),))
        self.path = str(self.root / "folder" / "file")

    def open(self) -> LocalFiles:
        ids = Random()
        return LocalFiles(
            cwd=str(self.root),
            checkpoints=CheckpointStore(self.history),
            new_id=lambda: f"{ids.getrandbits(96):024x}",
        )

    def put(self, files: LocalFiles, data: bytes) -> None:
        files.write(self.path, data, self.reach, replacing=files.peek(self.path, self.reach))

    def content(self) -> bytes | None:
        file = Path(self.path)
        return file.read_bytes() if file.exists() else None

    def litter(self) -> list[str]:
        """What lies about beside the one file."""
        return [str(file) for file in self.root.rglob("*") if file.is_file() and str(file) != self.path]


# The jobs: what was there, what the child does, and what may be there afterwards.


def create(place: Workplace, files: LocalFiles) -> None:
    files.begin_message("second")
    place.put(files, NEW)


def edit_twice(place: Workplace, files: LocalFiles) -> None:
    files.begin_message("second")
    place.put(files, NEW)
    place.put(files, NEXT)


def rewind(place: Workplace, files: LocalFiles) -> None:
    files.rewind("first", dry_run=False)


class Job:
    def __init__(
        self, before: Iterable[bytes], act: Callable[[Workplace, LocalFiles], None], *ends: bytes | None
    ) -> None:
        self.before = before
        self.act = act
        self.ends = ends

    def prepare(self, place: Workplace) -> None:
        files = place.open()
        files.begin_message("first")
        for data in self.before:
            place.put(files, data)


JOBS = {
    "create": Job([], create, None, NEW),
    "replace": Job([OLD], create, OLD, NEW),
    "edit twice": Job([OLD], edit_twice, OLD, NEW, NEXT),
    "rewind": Job([OLD], rewind, OLD, None),
}


def run_every_call(base: Path, names: Iterable[str], *, torn: bool) -> Counter[str]:
    """These jobs, killed before every call, or in the middle of those that write. Raises AssertionError."""
    deaths: Counter[str] = Counter()
    for name in names:
        job, number = JOBS[name], 1
        while (place := dies_at(base / f"{name}-{torn}-{number}", job, number, torn)) is not None:
            check(place, job, f"{name}, {'torn ' if torn else ''}call {number}")
            deaths[name] += 1
            number += 1
    return deaths


def dies_at(base: Path, job: Job, number: int, torn: bool) -> Workplace | None:
    """Do the job in a child that dies at its N-th call; None if it did not make so many."""
    place = Workplace(base)
    job.prepare(place)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Bomb(number, torn).plant()
            job.act(place, place.open())
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, DIED), f"the child ended with {code} at call {number}"
    return place if code == DIED else None


class Bomb:
    """Counts calls of the system, and ends the process at one of them."""

    def __init__(self, number: int, torn: bool) -> None:
        self.left = number
        self.torn = torn

    def plant(self) -> None:
        for module, names in ((os, OS_CALLS), (syscalls, KERNEL_CALLS)):
            for name in names:
                setattr(module, name, self.armed(name, getattr(module, name)))

    def armed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if self.torn and name == "write":
                    call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os._exit(DIED)
            return call(*arguments, **named)

        return counted


def check(place: Workplace, job: Job, case: str) -> None:
    """The file is whole, and the session continues."""
    found = place.content()
    assert found in job.ends, f"{case}: the file is torn, {len(found or b'')} bytes"
    files = place.open()
    files.begin_message("third")
    assert not place.litter(), f"{case}: left lying about: {place.litter()}"
    place.put(files, NEXT + b"!")
    assert place.content() == NEXT + b"!", f"{case}: could not be written afterwards"
    for message, ends in (("third", (found,)), ("first", (None,))):
        rewound = files.rewind(message, dry_run=False)
        assert rewound.possible, f"{case}: {rewound.reason}"
        assert not rewound.left_alone, f"{case}: {rewound.reason}"
        assert place.content() in ends, f"{case}: {message} is not what it was"
    assert not place.litter(), f"{case}: left lying about: {place.litter()}"


def run_random_kills(base: Path, kills: int, dice: Random) -> None:
    """A child that writes large files, killed at any time. Raises AssertionError."""
    place = Workplace(base / "killed")
    versions = [bytes([65 + number]) * (1 << 20) for number in range(4)]
    for number in range(kills):
        child = os.fork()
        if child == 0:
            files = place.open()
            files.begin_message(f"message {number}")
            while True:
                place.put(files, versions[(versions.index(place.content() or versions[0]) + 1) % len(versions)])
        time.sleep(dice.random() * 0.02)  # not a wait: the moment of the kill
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert place.content() in (None, *versions), f"kill {number}: the file is torn"
    place.open().begin_message("last")
    # A child may die before it has told the history of its half-written file; there is none of those.
    assert not place.litter(), f"left lying about: {place.litter()}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a writer at every call of the system and at random times.")
    parser.add_argument("--kills", type=int, default=500, help="at random times")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torn-") as base:
        deaths = run_every_call(Path(base), JOBS, torn=False) + run_every_call(Path(base), JOBS, torn=True)
        run_random_kills(Path(base), given.kills, Random(given.seed))
    counts = ", ".join(f"{number} in {name}" for name, number in deaths.items())
    sys.stdout.write(f"killed at every call: {counts}; at random: {given.kills}; no file was torn\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
