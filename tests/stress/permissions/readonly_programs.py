"""Run the real programs of the read-only tables with every flag they may have: nothing is written.

    python -m tests.stress.permissions.readonly_programs

Each flag of each row is tried alone, without and with values, if the tables accept the command and the program is
installed. The environment is that of the canary: no network, no root rights, temporary folders; only PATH has the real
programs. git runs in a small repository; its index, which `git status` refreshes, is the only file that may change. The
exit code is 1 if any other file does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from parley.permissions.shell import git_arguments, readers
from parley.permissions.shell.arguments import Program, _long_flags, _short_flags
from parley.permissions.shell.readers import is_read_only
from parley.permissions.shell.strict_parser import CommandLine, parse_strict
from tests.stress.permissions.canary import Ground

REAL = "/usr/bin:/bin"
REPOSITORY = (
    "git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -qm x && echo y >> a.txt && "
    "chmod -R a+rwX . && git config --global --add safe.directory '*' && chmod a+r ~/.gitconfig"
)


def commands() -> Iterator[str]:
    """A command for each flag of each row that the tables accept."""
    rows = {
        **readers.READERS,
        **{f"git {name}": row for name, row in (git_arguments.READERS | git_arguments.NESTED).items()},
    }
    for name, program in rows.items():
        if shutil.which(name.split()[0], path=REAL):
            for flag in flags(program):
                for operands in ([], ["a.txt"], ["a.txt", "b.py"]):
                    text = shlex.join([*name.split(), *flag, *operands])
                    line = parse_strict(text)
                    if isinstance(line, CommandLine) and is_read_only(line):
                        yield text


def flags(program: Program) -> Iterator[list[str]]:
    yield []
    for letter, kind in _short_flags(program.short).items():
        yield [f"-{letter}1"] if kind == ":" else [f"-{letter}"]
        if kind:
            yield [f"-{letter}", "x"]
    for word, kind in _long_flags(program.long).items():
        yield [f"--{word}", "1"] if kind == "=" else [f"--{word}"]
        if kind:
            yield [f"--{word}=x"]


def everything(ground: Ground) -> set[tuple[str, int]]:
    """All files of the test folder with the time of their last change."""
    return {
        (path, os.lstat(path).st_mtime_ns)
        for root in (ground.inside, ground.outside, ground.home)
        for folder, _, names in os.walk(root)
        for path in (os.path.join(folder, name) for name in names)
        if not path.endswith("/.git/index")
    }


def run(texts: Iterable[str]) -> tuple[int, list[str]]:
    """How many commands ran, and which of them wrote something."""
    count, wrote = 0, []
    with tempfile.TemporaryDirectory(prefix="readers-") as root:
        ground = Ground(Path(root))
        ground.environment["PATH"] = REAL
        subprocess.run(
            ["bash", "-c", REPOSITORY], cwd=ground.inside, env={"PATH": REAL, "HOME": str(ground.home)}, check=True
        )
        before = everything(ground)
        for text in texts:
            count += 1
            ground.run(text)
            if (after := everything(ground)) != before:
                wrote.append(text)
                before = after
    return count, wrote


def main() -> int:
    count, wrote = run(commands())
    sys.stdout.write(f"{count:,} commands of real programs, {len(wrote)} of them wrote something\n")
    for text in wrote:
        sys.stdout.write(f"wrote: {text!r}\n")
    return 1 if wrote else 0


if __name__ == "__main__":
    sys.exit(main())
