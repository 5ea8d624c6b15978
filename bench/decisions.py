"""Measure what it costs to judge a Bash command: the strict tokenizer and the tables, and the finder.

    python bench/decisions.py

Each figure is the median of many rounds in microseconds. The exit code is 1 if a plain command costs
more than 100 us without deny or ask rules.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from parley.permissions.shell import Line, allowed_by, finds, is_read_only, read, targets, unresolved
from parley.permissions.shell.finder import _surveyed

PLAIN = ("git status", "npm test", "ls -la src | head -20", "grep -rn 'TODO' src --include='*.py'", "touch x.txt")
UNPROVEN = ('for f in *.py; do wc -l "$f"; done', "echo $(git rev-parse HEAD)")
RULES = ("npm test:*", "git commit *", "make *", "ls:*")
DENIED = ("rm:*", "git push:*", "curl *")
ROUNDS = 2_000
MOST_MICROSECONDS = 100.0


def judge(command: str) -> None:
    line = read(command)
    if isinstance(line, Line):
        _ = is_read_only(line) or allowed_by(line, RULES)
        targets(line, "/work")


def search(command: str) -> None:
    _surveyed.cache_clear()
    finds(command, DENIED)
    unresolved(command)


def microseconds(work: Callable[[str], None], command: str) -> float:
    work(command)
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter_ns()
        work(command)
        taken.append((time.perf_counter_ns() - begun) / 1_000)
    return statistics.median(taken)


def main() -> int:
    slowest = 0.0
    for command in (*PLAIN, *UNPROVEN):
        judged, searched = microseconds(judge, command), microseconds(search, command)
        slowest = max(slowest, judged)
        sys.stdout.write(f"{judged:7.1f} us to judge, {searched:7.1f} us to search for denies   {command}\n")
    return 1 if slowest > MOST_MICROSECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
