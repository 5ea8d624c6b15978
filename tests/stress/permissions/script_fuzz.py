"""Run random sed and awk scripts that are proven to only read: no file may appear, vanish or change.

    python -m tests.stress.permissions.script_fuzz --count 60000 --seed 1

Scripts are joined from pieces of the languages, most of which write or run something. Every awk that is installed runs
each proven program. The exit code is 1 if a script did more than print.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from parley.permissions.shell.special_readers import edits_lines, only_prints

AWKS = [name for name in ("gawk", "mawk", "original-awk", "awk") if shutil.which(name)]
AWK = (
    "print", "printf", "$1", '"x"', '"./canary"', ">", ">>", "|", "getline", "system(", "(", ")", "{", "}", "/", "[",
    "]", '"', "\\", "\n", ";", ",", "BEGIN", "END", "a", "length", "~", "!", "&&", "||", "?", ":", "1", "NR", "if (1)",
    "else", "for (i in a)", "while (0)", '"touch canary"', "=", "+", "-", "#", "in", "sub(", "/a/", "/[/]/", '/"/', "@",
    "ARGV", "close(", '"%s"', " ", " ", " ", "$", "next", "exit", "/[a", "/]", "substr($0,1)", "delete a", "BEGIN{",
)  # fmt: skip
SED = (
    "s", "/", "|", "w canary", "e touch canary", "w", "e", "a", "i", "c", "\\", "\n", ";", "{", "}", "!", "1", "$", ",",
    "p", "d", "n", "N", "b", "t", ":x", "[", "]", "^", "g", "I", "y", "q", "=", "r a", "R", "W canary", "&", " ", "#",
    "M", "0", "touch canary", "s/a/b/", "/x/", "s/x/touch canary/", "F", "z", "l",
)  # fmt: skip
INPUT = "x a\ntouch canary\nx\n"
LIMIT_SECONDS = "2"


@dataclass
class Summary:
    proven: int = 0
    ran: int = 0
    """Proven scripts that the program accepted."""
    broken: list[list[str]] = field(default_factory=list)


def proven_commands(random: Random, count: int) -> Iterator[list[str]]:
    for _ in range(count):
        program = "".join(random.choice(AWK) for _ in range(random.randint(1, 9)))
        program = random.choice(("%s", "{%s}", "BEGIN{%s}")).replace("%s", program)
        if only_prints(program):
            yield from ([name, "--", program, "in"] for name in AWKS)  # a program may begin with a dash
        scripts = [
            "".join(random.choice(SED) for _ in range(random.randint(1, 8))) for _ in range(random.randint(1, 2))
        ]
        if all(map(edits_lines, scripts)):
            yield ["sed", *(word for script in scripts for word in ("-e", script)), "in"]


def run(count: int, seed: int) -> Summary:
    summary = Summary()
    for argv in proven_commands(Random(seed), count):
        with tempfile.TemporaryDirectory(prefix="scripts-") as root:
            file = Path(root) / "in"
            file.write_text(INPUT)
            done = subprocess.run(
                ["timeout", LIMIT_SECONDS, *argv], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            summary.proven += 1
            summary.ran += done.returncode == 0
            if [path.name for path in Path(root).iterdir()] != ["in"] or file.read_text() != INPUT:
                summary.broken.append(argv)
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    summary = run(arguments.count, arguments.seed)
    sys.stdout.write(f"{summary.proven:,} proven scripts, {summary.ran:,} accepted, {len(summary.broken)} wrote\n")
    for argv in summary.broken[:20]:
        sys.stdout.write(f"wrote: {argv!r}\n")
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
