"""Run every command that the strict parser allows in a real bash: the canary must never run.

    python -m tests.stress.permissions.canary --count 30000 --seed 1

Two generators make commands (canary_contexts.py, canary_everyday.py). Those that are allowed as read-only, or by a
few prefix rules, are run by `bash --norc --noprofile -c`, every other one in an `eval` as in the Bash tool. For each:

- `canary`, the bait in most commands, did not run;
- every program that ran got exactly the arguments that were checked;
- nothing was written, in the working directory or next to it.

A wrongly allowed command can do no harm: PATH contains only stubs that record their arguments, HOME and the working
directory are temporary, there is no network (`unshare -n`, or `bwrap`), and the shell drops root rights first. The
exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from parley.permissions.shell.arguments import unwrap
from parley.permissions.shell.command_rules import is_allowed_by
from parley.permissions.shell.readers import READERS, VERSIONS, is_read_only
from parley.permissions.shell.special_readers import CHECKS
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand, parse_strict
from parley.tools.bash import script
from tests.stress.permissions import canary_contexts, canary_everyday

GENERATORS = {"contexts": canary_contexts.commands, "everyday": canary_everyday.commands}
RULES = (
    "ls:*", "cat:*", "echo:*", "grep:*", "git:*", ": *", "true:*", "npm test:*", "pytest *", "make *", "xargs cat *",
)  # fmt: skip
OTHERS = "git npm pytest make cargo go docker rm touch env sudo timeout nice nohup stdbuf xargs tee sh curl time eval"
FILES = ("a.txt", "b.py", "a b", "-o", "-exec", "--pre=canary", "$(canary)", ";canary", "`canary`")
DOCUMENT = "$(cat <<"
NOBODY = "65534"
LIMIT_SECONDS = 20.0
HELD_DESCRIPTOR = 200
# One write, so that programs of a pipeline do not interleave their records.
STUB = '#!/bin/sh\nprintf "%s\\0" "$#" "${0##*/}" "$@" >> "$CANARY_LOG"\n'
# A here-document is an argument only if `cat` passes it on.
CAT = STUB + 'if [ "$#" = 0 ]; then while IFS= read -r line; do printf "%s\\n" "$line"; done; fi\n'
CANARY = '#!/bin/sh\n: > "$CANARY_MARK"\n'


@dataclass(frozen=True)
class Broken:
    command: str
    promise: str


@dataclass
class Summary:
    generated: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    programs: int = 0
    """How many programs ran and were compared with the parsed command."""
    broken: list[Broken] = field(default_factory=list)


class Ground:
    """A folder in which commands can do no harm."""

    def __init__(self, root: Path) -> None:
        root.chmod(0o755)
        self.inside, self.outside, self.home, self.notes = (root / name for name in ("in", "out", "home", "notes"))
        self.stubs = root / "stubs"
        self.log, self.mark = self.notes / "log", self.notes / "ran"
        for folder in (self.inside, self.outside, self.home, self.notes):
            folder.mkdir()
            folder.chmod(0o777)
        for name in FILES:
            (self.inside / name).write_text("x\n")
        (self.inside / "src").mkdir()
        (self.outside / "kept").write_text("x\n")
        self._make_stubs()
        self.shell = [*isolation(), shutil.which("bash") or "/bin/bash", "--norc", "--noprofile", "-c"]
        self.environment = {
            "PATH": str(self.stubs),
            "HOME": str(self.home),
            "LC_ALL": "C.UTF-8",
            "CANARY_LOG": str(self.log),
            "CANARY_MARK": str(self.mark),
        }
        self.before = self.state()

    def _make_stubs(self) -> None:
        self.stubs.mkdir()
        names = {*READERS, *CHECKS, *(name for name, _ in VERSIONS), *OTHERS.split()} - {":"}
        for name, text in (*((name, STUB) for name in names), ("cat", CAT), ("canary", CANARY)):
            path = self.stubs / name
            path.write_text(text)
            path.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)

    def state(self) -> list[tuple[str, int]]:
        return sorted(
            (entry.path, entry.stat().st_mtime_ns)
            for folder in (self.inside, self.outside, self.home, self.inside / "src")
            for entry in os.scandir(folder)
        )

    def run(self, command: str) -> None:
        self.log.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)
        done, held = os.pipe()
        high = fcntl.fcntl(held, fcntl.F_DUPFD, HELD_DESCRIPTOR)
        os.close(held)
        process = subprocess.Popen(
            [*self.shell, command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.inside,
            env=self.environment,
            pass_fds=(high,),
            start_new_session=True,
        )
        os.close(high)
        # Programs in the background hold the pipe open while they run. After the timeout they are killed;
        # what they did until then is checked.
        if not select.select([done], [], [], LIMIT_SECONDS)[0]:
            os.killpg(process.pid, signal.SIGKILL)
        os.close(done)
        process.wait()

    def ran(self) -> Iterator[tuple[str, ...]]:
        """The arguments of every program that ran."""
        if not self.log.exists():
            return
        words = self.log.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
        place = 0
        while place < len(words):
            count = int(words[place]) + 2
            yield tuple(words[place + 1 : place + count])
            place += count


def isolation() -> list[str]:
    """The command before a shell that removes its network and root rights."""
    rights = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    ways = (
        ["unshare", "--net", *rights],
        ["unshare", "--map-root-user", "--net"],
        ["bwrap", "--bind", "/", "/", "--unshare-net"],
    )
    for way in ways:
        if shutil.which(way[0]) and subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return [str(shutil.which(way[0])), *(shutil.which(word) or word for word in way[1:])]
    return []


def is_allowed(line: CommandLine) -> bool:
    return is_read_only(line) or is_allowed_by(line, RULES)


def judged(command: SimpleCommand) -> Iterator[tuple[str, ...]]:
    """The arguments that programs may get from this command: with its wrappers, and after builtin wrappers."""
    yield (command.argv[0].rpartition("/")[2], *command.argv[1:])
    inner = unwrap(command)
    for begin in range(1, len(command.argv) - len(inner.argv) + 1 if inner else 1):
        yield command.argv[begin:]


def broken_promises(line: CommandLine, ground: Ground, summary: Summary) -> Iterator[str]:
    """What went wrong when the line ran."""
    if ground.mark.exists():
        yield "the canary ran"
    if ground.state() != ground.before:
        yield "something was written"
    expected = {words for command in line.commands for words in judged(command)}
    if DOCUMENT in line.text:
        expected.add(("cat",))
    # Globs become file names: then only the program is known, also after its wrappers.
    loose = {words[0] for command in line.commands if command.globs for words in judged(command)}
    for words in ground.ran():
        summary.programs += 1
        if words not in expected and words[0] not in loose:
            yield f"a program got {words}"


def run(count: int, seed: int) -> Summary:
    """Generate commands until `count` of them were allowed and run, half from each generator."""
    summary = Summary()
    with tempfile.TemporaryDirectory(prefix="canary-") as root:
        ground = Ground(Path(root))
        for name, generator in GENERATORS.items():
            known: set[str] = set()
            for command in generator(Random(seed)):
                if summary.allowed[name] >= count // len(GENERATORS):
                    break
                summary.generated += 1
                line = parse_strict(command, str(ground.home))
                if command in known or not isinstance(line, CommandLine) or not is_allowed(line):
                    continue
                known.add(command)
                summary.allowed[name] += 1
                ground.run(command if summary.allowed[name] % 2 else script(command))
                summary.broken += [Broken(command, promise) for promise in broken_promises(line, ground, summary)]
                if ground.state() != ground.before:
                    return summary
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    summary = run(arguments.count, arguments.seed)
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"{sum(summary.allowed.values()):,} allowed of {summary.generated:,} made ({dict(summary.allowed)}), "
        f"{summary.programs:,} programs compared, {len(summary.broken)} broken promises, {seconds:.0f} s\n"
    )
    for broken in summary.broken[:20]:
        sys.stdout.write(f"{broken.promise}: {broken.command!r}\n")
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
