"""Processes race for one session: exactly one holds it, however the others start and end.

    python -m tests.stress.stores.lease_races --races 1000 --seed 1

In every race some processes start at the same moment; one may be the last holder, who just then lets go or is
killed. The holder must be one of them, or the old one, and never two.

In the races of thieves the holder lets go while others steal. A thief's lease is there until another thief, or the
thief itself, takes it away: never because the old holder removed it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from parley.errors import SessionBusy
from parley.stores.lease import acquire

RACERS = 6


class Racer:
    """A process that tries to hold a session when it is told to."""

    def __init__(self, path: Path, *, steal: bool = False) -> None:
        start, self._gun = os.pipe()
        self._heard, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gun)
            try:
                self._race(path, start, answer, steal=steal)
            finally:
                os._exit(0)
        os.close(start)
        os.close(answer)

    def _race(self, path: Path, start: int, answer: int, *, steal: bool) -> None:
        os.read(start, 1)
        try:
            lease = acquire(path, "s", steal=steal)
        except SessionBusy:
            os.write(answer, b"b")
            return
        os.write(answer, b"h")
        os.read(start, 1)  # until it is told to end, or to look
        if steal:
            os.write(answer, b"h" if lease.is_ours() else b"l")
            os.read(start, 1)
        lease.release()

    def start(self) -> None:
        # A word, and not the end of the pipe: the racers that were born later hold it open too.
        os.write(self._gun, b"!")

    def holds(self) -> bool:
        return os.read(self._heard, 1) == b"h"

    def end(self, *, killed: bool) -> None:
        if killed:
            os.kill(self.pid, signal.SIGKILL)
        else:
            with suppress(BrokenPipeError):  # whoever lost has gone by itself
                self.start()
        os.waitpid(self.pid, 0)
        self.close()

    def close(self) -> None:
        os.close(self._gun)
        os.close(self._heard)


def race(path: Path, holder: Racer | None, dice: Random) -> tuple[Racer | None, str]:
    """One race; who holds the session now, and what happened, in a word."""
    racers = [Racer(path) for _ in range(RACERS)]
    for at, racer in enumerate(racers):
        if holder is not None and at == RACERS // 2:
            holder.end(killed=dice.random() < 0.5)
        racer.start()
    winners = [racer for racer in racers if racer.holds()]
    for racer in racers:
        if racer not in winners:
            racer.end(killed=False)
    if len(winners) > 1 or (holder is None and not winners):
        raise AssertionError(f"{len(winners)} of {RACERS} hold the session")
    return (winners[0], "won") if winners else (None, "all were too early")


def rob(path: Path, dice: Random) -> str:
    """A holder lets go while one or two steal: one of them holds the session in the end, by a lease that is there."""
    holder = Racer(path)
    holder.start()
    if not holder.holds():
        raise AssertionError("a free session was not to be had")
    thieves = [Racer(path, steal=True) for _ in range(dice.choice((1, 1, 2)))]
    for racer in dice.sample([holder, *thieves], len(thieves) + 1):
        racer.start()
    if [thief.holds() for thief in thieves] != [True] * len(thieves):
        raise AssertionError("a thief did not get the session")
    os.waitpid(holder.pid, 0)
    holder.close()
    for thief in thieves:
        thief.start()
    left = sum([thief.holds() for thief in thieves])
    is_there = path.exists()
    for thief in thieves:
        thief.end(killed=False)
    if left != 1 or not is_there:
        raise AssertionError(f"{left} of {len(thieves)} thieves hold the session; the lease is there: {is_there}")
    return "stolen"


def run_thefts(folder: Path, races: int, seed: int) -> Counter[str]:
    dice = Random(seed)
    return Counter(rob(folder / "lease", dice) for _ in range(races))


def run(folder: Path, races: int, seed: int) -> Counter[str]:
    dice, holder = Random(seed), None
    outcomes: Counter[str] = Counter()
    for _ in range(races):
        holder, word = race(folder / "lease", holder, dice)
        outcomes[word] += 1
    if holder is not None:
        holder.end(killed=False)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--races", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder), given.races, given.seed)
        outcomes += run_thefts(Path(folder), given.races, given.seed)
    sys.stdout.write(f"{dict(outcomes)}\n")


if __name__ == "__main__":
    main()
