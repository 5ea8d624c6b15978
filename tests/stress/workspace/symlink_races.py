"""Replace files, folders and symlinks while another process reads and writes them (T-14).

    python -m tests.stress.workspace.symlink_races --swaps 100000 --seed 1
    python -m tests.stress.workspace.symlink_races --swaps 100000 --walk        # as on systems without openat2
    python -m tests.stress.workspace.symlink_races --swaps 1000 --naive  # a victim that checks names: must be caught

One process swaps what names within the root lead to, between things inside and things outside; another
reads, writes and edits by those names. Nothing that lies outside may ever be read or changed. The exit
code is 0 if that held, 1 if not.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from parley.errors import ToolError
from parley.workspace import syscalls
from parley.workspace.base import Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles

SECRET = b"SECRET: lies outside"
NAMES = ("file", "folder/file", "folder/inner/file", "new/file")
EXCHANGE = 2


class Caught(AssertionError):
    """Something outside was read or changed."""


# The racer: what a hostile process inside the root can do.


class Racer:
    def __init__(self, base: Path, dice: Random) -> None:
        self.inside, self.outside = base / "inside", base / "outside"
        self.stage = self.inside / ".stage"
        self.stage.mkdir(exist_ok=True)
        self.dice = dice
        self.libc = ctypes.CDLL(None, use_errno=True)

    def run(self, swaps: int) -> None:
        for number in range(swaps):
            name, made = self.dice.choice((("file", self.leaf), ("folder", self.branch), ("folder/inner", self.branch),
                                           ("folder/file", self.leaf), ("new", self.branch)))  # fmt: skip
            staged, target = self.stage / str(number), self.inside / name
            if target.parent.is_symlink():
                target = self.inside / "folder"  # through it we would change what is outside ourselves
            with suppress(OSError):  # no folder is there, or one that is not empty
                made(staged, name)
                self.swap(staged, target)

    def leaf(self, staged: Path, name: str) -> None:
        """A file, or what may stand in its place."""
        kind = self.dice.randrange(6)
        if kind == 0:
            os.mkfifo(staged)
        elif kind <= 2:
            staged.write_bytes(b"inside\n")
        else:
            staged.symlink_to(self.lead(name.count("/"), "secret", "file"))

    def branch(self, staged: Path, name: str) -> None:
        """A folder, or what may stand in its place."""
        if self.dice.random() < 0.4:
            (staged / "inner").mkdir(parents=True)
            for file in ("file", "inner/file"):
                (staged / file).write_bytes(b"inside\n")
        else:
            staged.symlink_to(self.lead(name.count("/"), "folder", ".stage"))

    def lead(self, depth: int, out: str, into: str) -> str:
        """Where a link leads: mostly out, in one of several spellings."""
        return self.dice.choice((
            str(self.outside / out), "../" * (depth + 1) + f"outside/{out}", f"/proc/self/root{self.outside}/{out}",
            f"{self.inside}//../outside/./{out}", str(self.inside / into),
        ))  # fmt: skip

    def swap(self, staged: Path, name: Path) -> None:
        """Exchange two names in one step, or take the name if it is free."""
        call = self.libc.renameat2(-100, os.fsencode(staged), -100, os.fsencode(name), ctypes.c_uint(EXCHANGE))
        if call != 0:
            os.rename(staged, name)


# The victim: who reads and writes meanwhile.


class Victim:
    def __init__(self, base: Path, dice: Random) -> None:
        self.inside = base / "inside"
        self.dice = dice
        self.reach = Scope(folders=(str(self.inside),))
        self.files = LocalFiles(
            cwd=str(self.inside),
            checkpoints=CheckpointStore(base / "history"),
            new_id=lambda: f"{dice.getrandbits(96):024x}",
        )
        self.outcomes: Counter[str] = Counter()

    def act(self) -> None:
        """One call. Raises Caught if it saw something outside."""
        name, act = (
            str(self.inside / self.dice.choice(NAMES)),
            self.dice.choice((self.read, self.read, self.read, self.edit)),
        )
        try:
            act(name)
            self.outcomes[f"{act.__name__} done"] += 1
        except ToolError as exc:
            self.outcomes[f"{act.__name__} refused"] += 1
            if SECRET.decode() in str(exc):
                raise Caught(f"{name} told: {exc}") from None

    def read(self, name: str) -> None:
        found = self.files.read(name, self.reach)
        if SECRET in found.data or not found.path.startswith(f"{self.inside}/"):
            raise Caught(f"{name} gave {found}")

    def edit(self, name: str) -> None:
        found = self.files.peek(name, self.reach)
        if found is not None and SECRET in found.data:
            raise Caught(f"{name} gave {found}")
        self.files.write(name, b"ours\n", self.reach, replacing=found)


class Naive(Victim):
    """Looks where a name leads, and opens it then: what everybody does."""

    def read(self, name: str) -> None:
        try:
            if not os.path.realpath(name).startswith(f"{self.inside}/"):
                raise ToolError("outside")
            with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if SECRET in file.read():
                    raise Caught(name)
        except OSError as exc:
            raise ToolError(str(exc)) from None

    edit = read


def run(base: Path, swaps: int, seed: int, victim: Callable[[Path, Random], Victim] = Victim) -> Counter[str]:
    """Race until that many swaps are made. Raises Caught."""
    before = set_up(base)
    racer = subprocess.Popen(
        [sys.executable, __file__, "--be-the-racer", str(base), "--swaps", str(swaps), "--seed", str(seed)]
    )
    try:
        raced = victim(base, Random(seed))
        while racer.poll() is None:
            for _ in range(20):
                raced.act()
    finally:
        racer.kill()
        racer.wait()
    if racer.returncode != 0:
        raise RuntimeError(f"the racer broke off with {racer.returncode}")
    if outside(base) != before:
        raise Caught(f"outside was {before} and is {outside(base)}")
    return raced.outcomes


def set_up(base: Path) -> dict[str, tuple[int, int, bytes]]:
    for folder in ("inside", "outside/folder/inner"):
        (base / folder).mkdir(parents=True)
    for file in ("secret", "file", "folder/file", "folder/inner/file"):
        (base / "outside" / file).write_bytes(SECRET)
    return outside(base)


def outside(base: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything outside: inode, time of change, content."""
    found = {}
    for path in sorted((base / "outside").rglob("*")):
        status = path.lstat()
        found[str(path)] = status.st_ino, status.st_mtime_ns, path.read_bytes() if path.is_file() else b""
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Swap what names lead to while they are used.")
    parser.add_argument("--swaps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--walk", action="store_true", help="without openat2")
    parser.add_argument("--naive", action="store_true", help="a victim that must be caught")
    parser.add_argument("--be-the-racer", metavar="FOLDER", help="used by the programme itself")
    given = parser.parse_args()
    if given.be_the_racer:
        Racer(Path(given.be_the_racer), Random(given.seed)).run(given.swaps)
        return 0
    if given.walk:
        syscalls.has_openat2 = lambda: False  # type: ignore[assignment]  # as on other systems
    with tempfile.TemporaryDirectory(prefix="racer-") as base:
        try:
            outcomes = run(Path(base), given.swaps, given.seed, Naive if given.naive else Victim)
        except Caught as exc:
            sys.stdout.write(f"CAUGHT: {exc}\n")
            return 1
    counts = ", ".join(f"{number:,} {name}" for name, number in sorted(outcomes.items()))
    sys.stdout.write(f"{given.swaps:,} swaps against {counts}; nothing outside was read or changed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
