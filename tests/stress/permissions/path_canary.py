"""Put programs of the working tree on PATH and run every allowed line: none of these programs may run.

    python -m tests.stress.permissions.path_canary --count 3000 --seed 1

Each session has a working tree with a program in it that leaves a mark, and a PATH with folders of the tree, links to
them, relative entries and the system's folders in any order. Lines are made from readers, editors and wrappers, and
from commands that prefix rules allow; those that `decide` allows are run in a real bash, one after the other, in the
same tree, so that a line may use what an earlier one has made.

The shell has no network and, started as root, no rights. The exit code is 1 if the mark was left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from parley.permissions.base import Allow, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rule import Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.workspace.search_path import with_absolute_path
from tests.stress.permissions import canary

EVIL = "tools/evil"
NAMES = (
    "wc",
    "cat",
    "head",
    "ls",
    "sort",
    "grep",
    "egrep",
    "cut",
    "touch",
    "cp",
    "mkdir",
    "timeout",
    "nice",
    "echo",
    "env",
    "sh",
)
FOLDERS = (".venv/bin", "node_modules/.bin", "tools", "bin", "link", ".")
OUTSIDE = ("alias", "shims")
RELATIVE = (".", "", "bin", "./tools", "node_modules/.bin", "/proc/self/cwd/bin")
READERS = (
    "{n} a.txt", "{n} -c a.txt", "timeout 5 {n} a.txt", "nice {n} a.txt", "head -1 a.txt | {n}", "{n} a.txt && ls",
    "echo x | {n}", "cd bin && {n} ../a.txt", "command {n} a.txt", "grep x a.txt | {n} | cat", "time {n} a.txt",
)  # fmt: skip
EDITS = (
    "cp {s} {d}", "mv {s} {d}", "cp {s} {f}", "cp -r tools {f}", "mv {f} old", "mv old {f}", "mkdir -p {f}",
    "rm -r {f}",
    "cp -a {s} {d}; {n} a.txt", "rm -f {d} && cp {s} {d} && {n} a.txt", "echo x > {d}", "cp -r {f} copy", "mv copy {f}",
    "touch {d}", "cp tools/* {f}", "sed -i s/x/y/ {d}",
)  # fmt: skip
BY_PREFIX = (
    "ln -s {s} {d}", "ln -sf ../{s} {d}", "install -m 755 {s} {d}", "cp -T {s} {d}", "ln -s {f} alias2",
    "cp {s} alias2/{n}",
    "mv -T {f} x", "cp -f --backup {s} {d}", "dd if={s} of={d}", "chmod 755 {d}", "tee {d}", "install -t {f} {s}",
)  # fmt: skip
RULES = ("ln:*", "install:*", "cp:*", "mv:*", "dd:*", "chmod *", "tee:*")
LINES_A_SESSION = 30
LIMIT_SECONDS = 60


class Session:
    """A working tree, a PATH, and rules."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root, self.work, self.mark = root, root / "work", root / "mark"
        self.random = random
        for folder in (self.work, *(self.work / name for name in FOLDERS if name not in ("link", "."))):
            folder.mkdir(parents=True, exist_ok=True)
        evil = self.work / EVIL
        evil.write_text(f"#!/bin/bash\n: > {self.mark}\n")
        evil.chmod(0o755)
        (self.work / "a.txt").write_text("x\n")
        (self.work / "link").symlink_to("bin")
        (root / "alias").symlink_to(self.work / "bin")
        (root / "shims").mkdir()
        if random.random() < 0.5:
            planted = self.work / random.choice(FOLDERS[:4]) / random.choice(NAMES)
            shutil.copy(evil, planted)
        (root / "shims" / random.choice(NAMES)).symlink_to(evil)
        for place, folders, _ in os.walk(root):
            os.chmod(place, 0o777)
            for name in folders:
                if not os.path.islink(f"{place}/{name}"):
                    os.chmod(f"{place}/{name}", 0o777)
        self.path = ":".join(self._entries())
        mode = random.choice(("default", "acceptEdits", "acceptEdits", "plan", "dontAsk"))
        specs = RULES if random.random() < 0.5 else ()
        read = [parse_rule(f"Bash({spec})", "allow", "user", str(self.work)) for spec in specs]
        self.mode, self.rules = mode, RuleSet(cwd=str(self.work), rules=tuple(r for r in read if isinstance(r, Rule)))

    def _entries(self) -> list[str]:
        inside = [str(self.work / name) for name in self.random.sample(FOLDERS, self.random.randint(1, 3))]
        outside = [str(self.root / name) for name in OUTSIDE if self.random.random() < 0.3]
        entries = [*inside, *outside, *self.random.sample(RELATIVE, self.random.randint(0, 2)), "/usr/bin", "/bin"]
        self.random.shuffle(entries)
        return entries

    def lines(self) -> Iterator[str]:
        for _ in range(LINES_A_SESSION):
            pick = self.random.choice
            name, folder = pick(NAMES), pick(FOLDERS)
            made = pick(pick((READERS, EDITS, BY_PREFIX)))
            yield made.format(n=name, f=folder, d=f"{folder}/{name}", s=pick((EVIL, f"{pick(FOLDERS)}/{pick(NAMES)}")))

    def allows(self, line: str) -> bool:
        request = ToolRequest(tool="Bash", input={"command": line}, cwd=str(self.work), search_path=self.path)
        return isinstance(decide(request, self.rules, self.mode, RealFilesystem(str(self.root))), Allow)

    def run(self, line: str, shell: list[str]) -> None:
        environment = with_absolute_path({"PATH": self.path, "HOME": str(self.root)})
        subprocess.run(
            [*shell, line],
            cwd=self.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=False,
        )


def run(count: int, seed: int) -> tuple[Counter[str], list[list[str]]]:
    """How many lines were generated and allowed in each mode, and the lines of every session that left the mark."""
    told: Counter[str] = Counter()
    broken: list[list[str]] = []
    random = Random(seed)
    shell = [*canary.isolation(), "/bin/bash", "--norc", "--noprofile", "-c"]
    while told["allowed"] < count:
        with tempfile.TemporaryDirectory(prefix="path-canary-", ignore_cleanup_errors=True) as root:
            session, ran = Session(Path(root), random), list[str]()
            for line in session.lines():
                told["made"] += 1
                if not session.allows(line):
                    continue
                told["allowed"] += 1
                told[session.mode] += 1
                ran.append(line)
                session.run(line, shell)
                if session.mark.exists():
                    broken.append([session.mode, session.path, *map(str, session.rules.rules[:1]), *ran])
                    break
    return told, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    told, broken = run(arguments.count, arguments.seed)
    sys.stdout.write(f"{dict(told)}, {len(broken)} sessions in which a program of the tree ran\n")
    for lines in broken[:10]:
        sys.stdout.write("\n  ".join(lines) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
