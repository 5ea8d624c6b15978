"""Random edits, commands, foreign edits, rewinds and restarts, compared with a model (T-38).

    python -m tests.stress.workspace.random_rewinds --steps 20000 --seed 1

The model is a dictionary from names to contents. Each message remembers, for every file that we change after
it, what the file was then. After every step the folder must equal the model, and a rewind must tell exactly
what the model expects of it. The exit code is 0 if they were equal all the way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from parley.workspace.base import Scope
from parley.workspace.checkpoints import CheckpointStore
from parley.workspace.local import LocalFiles
from parley.workspace.tree_snapshot import TreeSnapshot

NAMES = ("a", "b", "c", "sub/d", "sub/deep/e", "sub/deep/f")
SESSION_STEPS = 1_000
"""After so many steps a session ends and another begins with the same files."""

Content = bytes | None


@dataclass
class Model:
    files: dict[str, bytes] = field(default_factory=dict)
    ours: dict[str, Content] = field(default_factory=dict)
    """What we left each file as."""
    messages: dict[str, dict[str, Content]] = field(default_factory=dict)
    """What each file was when the message came in, for those that we changed since."""

    def put(self, name: str, content: Content) -> None:
        if content is None:
            self.files.pop(name, None)
        else:
            self.files[name] = content

    def change(self, name: str, content: Content) -> None:
        """We do it."""
        for known in self.messages.values():
            known.setdefault(name, self.files.get(name))
        self.put(name, content)
        self.ours[name] = content

    def rewind(self, message: str, dry_run: bool) -> tuple[set[str], set[str], int]:
        """Which files are restored, which are left alone, and how many lines there are more."""
        restored, left, more = set(), set(), 0
        for name, then in list(self.messages[message].items()):
            now = self.files.get(name)
            if now == then:
                continue
            if now is not None and now != self.ours[name]:
                left.add(name)
                continue
            restored.add(name)
            more += lines(then) - lines(now)
            if not dry_run:
                self.change(name, then)
        return restored, left, more


def lines(content: Content) -> int:
    return len((content or b"").splitlines())


class Walk:
    def __init__(self, base: Path, seed: int) -> None:
        self.root, self.base = base / "root", base
        self.root.mkdir()
        self.dice = Random(seed)
        self.model = Model()
        self.reach = Scope(folders=(str(self.root),))
        self.steps: Counter[str] = Counter()
        self._ids, self._sessions = count(1), 0
        self.begin_session()

    def begin_session(self) -> None:
        self._sessions += 1
        self.model.messages.clear()
        self.model.ours.clear()
        self.restart()
        self.message()

    def restart(self) -> None:
        """The same session in another process."""
        checkpoints = CheckpointStore(self.base / f"history-{self._sessions}")
        self.files = LocalFiles(
            cwd=str(self.root),
            checkpoints=checkpoints,
            new_id=lambda: f"{self.dice.getrandbits(96):024x}",
            tree=TreeSnapshot(str(self.root), checkpoints, []),
        )

    def step(self) -> None:
        """One step. Raises AssertionError if the folder and the model part."""
        act = self.dice.choices(tuple(STEPS), tuple(STEPS.values()))[0]
        self.steps[act.__name__] += 1
        act(self)
        found = {name: (self.root / name).read_bytes() for name in NAMES if (self.root / name).exists()}
        assert found == self.model.files, f"after {act.__name__}: {found} is not {self.model.files}"
        strays = [
            str(file)
            for file in self.root.rglob("*")
            if file.is_file() and str(file.relative_to(self.root)) not in NAMES
        ]
        assert not strays, f"after {act.__name__}: {strays}"

    # What may happen.

    def message(self) -> None:
        name = f"message {next(self._ids)}"
        self.model.messages[name] = {}
        self.files.begin_message(name)

    def write(self) -> None:
        name, content = self.dice.choice(NAMES), self.content()
        path = str(self.root / name)
        self.files.write(path, content, self.reach, replacing=self.files.peek(path, self.reach))
        self.model.change(name, content)

    def command(self) -> None:
        """A command of ours, which goes past the files."""
        self.files.before_command()
        changed = {self.dice.choice(NAMES): self.dice.choice((None, self.content())) for _ in range(3)}
        for name, content in changed.items():
            self.put(name, content)
        self.files.after_command()
        for name, content in changed.items():
            if content != self.model.files.get(name):
                self.model.change(name, content)

    def somebody_writes(self) -> None:
        name, content = self.dice.choice(NAMES), self.content()
        self.put(name, content)
        self.model.put(name, content)

    def somebody_deletes(self) -> None:
        name = self.dice.choice(NAMES)
        self.put(name, None)
        self.model.put(name, None)

    def rewind(self) -> None:
        self.go_back(dry_run=False)

    def look_ahead(self) -> None:
        self.go_back(dry_run=True)

    def go_back(self, dry_run: bool) -> None:
        message = self.dice.choice(tuple(self.model.messages))
        restored, left, more = self.model.rewind(message, dry_run)
        told = self.files.rewind(message, dry_run=dry_run)
        assert {self.name(path) for path in told.files} == restored, f"{message}: {told}, not {restored}"
        assert {self.name(path) for path in told.left_alone} == left, f"{message}: {told}, not {left}"
        assert told.insertions - told.deletions == more, f"{message}: {told}, not {more} lines more"
        assert told.possible == (bool(restored) or not left), f"{message}: {told}"

    def put(self, name: str, content: Content) -> None:
        if content is None:
            (self.root / name).unlink(missing_ok=True)
        else:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(content)

    def content(self) -> bytes:
        """Few different ones, so that files are often what they were before."""
        return b"".join(b"line %d\n" % self.dice.randrange(3) for _ in range(self.dice.randrange(3)))

    def name(self, path: str) -> str:
        return str(Path(path).relative_to(self.root))


STEPS: dict[Callable[[Walk], None], int] = {
    Walk.message: 20,
    Walk.write: 40,
    Walk.command: 10,
    Walk.somebody_writes: 6,
    Walk.somebody_deletes: 4,
    Walk.rewind: 12,
    Walk.look_ahead: 6,
    Walk.restart: 4,
}


def run(base: Path, steps: int, seed: int) -> Counter[str]:
    """Walk that far. Raises AssertionError."""
    walk = Walk(base, seed)
    for number in range(steps):
        if number and number % SESSION_STEPS == 0:
            walk.begin_session()
        try:
            walk.step()
        except Exception as exc:
            exc.add_note(f"seed {seed}, step {number}")
            raise
    return walk.steps


def main() -> int:
    parser = argparse.ArgumentParser(description="Random edits and rewinds beside a model.")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rewind-") as base:
        steps = run(Path(base), given.steps, given.seed)
    counts = ", ".join(f"{number:,} {name}" for name, number in steps.most_common())
    sys.stdout.write(f"{given.steps:,} steps ({counts}): files and model were equal all the way\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
