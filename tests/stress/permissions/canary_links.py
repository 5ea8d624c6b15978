"""Run every reader that is allowed without a rule in a real bash, in a tree full of symlinks to the outside.

    python -m tests.stress.permissions.canary_links --count 5000 --seed 1

Commands consist of `cd` in all its forms, readers with flags that follow symlinks, and globs that match symlinks. Those
that are allowed in the default mode without a rule run with real programs. Every file outside the tree contains a
token, every folder outside has a file with another token in its name, and all have the same size: none of these may be
printed.

The shell has no network (`unshare -n`, or `bwrap`) and drops root rights. The exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from parley.permissions.base import Allow, ToolRequest
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rules import RuleSet
from tests.stress.permissions import canary

CONTENT, NAME, SIZE = "CONTENT-TOKEN-7f3a", "NAME-TOKEN-91c4", 77_777
LIMIT_SECONDS = 20.0
FILES = ("a.txt", "b.py", "src/m.py", "src/n.py", "clean/x", "clean/d/y", "sub/a.txt", "sub/deep/z", "-R", "-L", "[x]")
LINKS = {
    "link": "out/kept", "sub/dir": "out", "sub/deep/a.txt": "out/kept", "clean/in": "in/a.txt", "to-sub": "in/sub",
    "odd/*": "out/kept", "odd/[q]": "out/kept", "odd/home": "home", "sub/é": "out/kept", "src/up": "in/..",
}  # fmt: skip
MOVES = (
    "cd", "cd --", "cd -P", "cd -L", "cd -", "cd .", "cd ''", "cd src", "cd sub", "cd sub/dir", "cd to-sub", "cd ..",
    "cd -P to-sub", "cd src/up", "cd odd/home", "command cd sub", "timeout 2 cd sub", "nice cd src", "cd clean/d",
    "true || cd src", "false && cd sub", "ls | cd src", "cd nowhere", "cd src && cd ..", "cd to-sub && cd ..", "pushd",
)  # fmt: skip
READERS = (
    "cat @", "head -5 @", "wc -c @", "wc @ @", "grep -h '' @", "grep -r '' @", "grep -R '' @", "grep -Rh '' @",
    "grep '' @", "ls @", "ls -L @", "ls -lL @", "ls -R @", "ls -LR @", "ls -la @", "find @ -name '*'", "find -L @",
    "find @ -follow", "find -H @", "find @ -size -99999c -ls", "du -ab @", "du -abL @", "du -abD @", "diff @ @",
    "diff -r @ @", "diff -N @ @", "diff -rN @ @", "stat -c '%s %n' @", "stat -L -c '%s %n' @", "file @", "sort @",
    "tac @", "nl @", "od -c @", "base64 @", "cut -c1-80 @", "echo @", "echo @ @", "true @", "sed -n 1p @", "tail @",
    "strings @", "md5sum @", "grep -f @ @", "realpath @", "readlink -f @", "paste @ @", "cmp @ @", "comm @ @",
    "timeout 5 cat @", "nice cat @", "cat < @", "ls", "ls -L", "ls -LR", "find -L", "du -abL", "grep -R ''", "cat *",
)  # fmt: skip
PLACES = (
    "a.txt", "link", "src", "sub", "sub/dir", "clean", ".", "..", "sub/deep", "to-sub", "odd", "src/up", "sub/dir/kept",
    "*", "l*", "?ink", "[l]ink", "[!a]ink", "[k-m]ink", "s*", "s*/*", "*/*", "*/*/*", "src/*", "src/*.py", "sub/*",
    "sub/d*", "sub/d*/*", "clean/*", "c*/in", "odd/*", "'odd/*'", "odd/\\*", "odd/'['*", "odd/[[]q]", "odd/[q]", "t*/*",
    "to-sub/*", "../*", "../out/*", "sub/dir/*", "sub/dir/../*", "*/dir/*", "*/../*", "src/up/*", "src/up/../*", ".*",
    "odd/h*/*", "sub/?", "sub/[é]", "sub/[[:alpha:]]", "s?b/*/a.txt", "''*", "\"l\"*", "l\"i\"*", "*'k'", "-*", "[-]*",
    "a.txt link", "/etc/hostname", "odd/home/notes", "notes", ".ssh/id_rsa", ".ssh/*", "$?", "*$?", "sub/../link",
)  # fmt: skip
JOINTS = (" && ", "; ", " || ", " | ", "\n", " & ", " && ", " && ")


@dataclass
class Summary:
    generated: int = 0
    allowed: int = 0
    broken: list[tuple[str, str]] = field(default_factory=list)


class Ground:
    """A tree with symlinks to the outside, and their targets."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.root, self.inside, self.home, outside = root, root / "in", root / "home", root / "out"
        for name in FILES:
            self._write(self.inside / name, "x\n")
        body = (CONTENT + "\n") * (SIZE // (len(CONTENT) + 1) + 1)
        for path in (
            outside / "kept",
            outside / NAME,
            self.home / "notes",
            self.home / NAME,
            self.home / ".ssh/id_rsa",
        ):
            self._write(path, body[:SIZE])
        self._write(root / NAME, body[:SIZE])
        for name, target in LINKS.items():
            path = self.inside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(root / target)
        self.shell = [*canary.isolation(), "/bin/bash", "--norc", "--noprofile", "-c"]
        self.environments = [
            {"PATH": os.defpath, "HOME": str(self.home), "LC_ALL": locale, "OLDPWD": str(outside)}
            for locale in ("C", "C.UTF-8")
        ]

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)

    def is_allowed(self, command: str) -> bool:
        request = ToolRequest(tool="Bash", input={"command": command}, cwd=str(self.inside))
        return isinstance(
            decide(request, RuleSet(cwd=str(self.inside)), "default", RealFilesystem(str(self.home))), Allow
        )

    def printed(self, command: str, environment: dict[str, str]) -> str:
        try:
            done = subprocess.run(
                [*self.shell, command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.inside,
                env=environment,
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            return (exc.stdout or b"").decode(errors="replace")
        return done.stdout.decode(errors="replace")


def commands(random: Random) -> Iterator[str]:
    """An endless stream of lines with `cd` commands and readers."""
    while True:
        parts = [random.choice(MOVES) for _ in range(random.choice((0, 0, 1, 1, 2)))]
        for _ in range(random.choice((1, 1, 1, 2))):
            text = random.choice(READERS)
            while "@" in text:
                text = text.replace("@", random.choice(PLACES), 1)
            parts.append(text)
        yield "".join(f"{part}{random.choice(JOINTS)}" for part in parts[:-1]) + parts[-1]


def run(count: int, seed: int) -> Summary:
    """Generate commands until `count` of them were allowed and run."""
    summary = Summary()
    with tempfile.TemporaryDirectory(prefix="links-") as root:
        ground = Ground(Path(root).resolve())
        known: set[str] = set()
        for command in commands(Random(seed)):
            if summary.allowed >= count:
                break
            summary.generated += 1
            if command in known or not ground.is_allowed(command):
                continue
            known.add(command)
            summary.allowed += 1
            for environment in ground.environments:
                printed = ground.printed(command, environment)
                summary.broken += [(command, token) for token in (CONTENT, NAME, str(SIZE)) if token in printed]
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    summary = run(arguments.count, arguments.seed)
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"{summary.allowed:,} allowed of {summary.generated:,} made, {len(summary.broken)} broken promises, "
        f"{seconds:.0f} s\n"
    )
    for command, token in summary.broken[:20]:
        sys.stdout.write(f"{token} was printed: {command!r}\n")
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
