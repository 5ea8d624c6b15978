"""Measure permission decisions on Bash commands, as a whole and in parts.

    python bench/decisions.py

Each figure is the median of many rounds in microseconds of processor time, with empty caches. The columns are `decide`
with some allow rules on a real directory, the same with deny rules, parsing and classifying alone, and the search for
denied commands.

The exit code is 1 if a plain command takes more than 100 us without deny or ask rules, or a git command more than
250 us. The state of a git repository is checked every time, in a linked worktree in two directories.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable

from parley.permissions.base import ToolRequest
from parley.permissions.decision import decide
from parley.permissions.filesystem import RealFilesystem
from parley.permissions.rule import Behavior, Rule, parse_rule
from parley.permissions.rules import RuleSet
from parley.permissions.shell.arguments import unwrap
from parley.permissions.shell.command_rules import is_allowed_by
from parley.permissions.shell.deny_search import _survey_cached, find_denied, is_unresolved
from parley.permissions.shell.readers import files_read, is_read_only
from parley.permissions.shell.strict_parser import CommandLine, _parse_cached, parse_strict
from parley.permissions.shell.targets import find_targets

PLAIN = ("npm test", "ls -la", "touch x.txt")
GIT = ("git status", "git log --oneline -5", "git commit -m x")
LONGER = ("ls -la src | head -20", "grep -rn 'TODO' src --include='*.py'", "cd src && make && npm test")
UNPROVEN = ('for f in *.py; do wc -l "$f"; done', "echo $(git rev-parse HEAD)")
ALLOWED = ("npm test:*", "git commit *", "make *", "ls:*")
DENIED = ("rm:*", "git push:*", "curl *")
CWD = os.getcwd()
PATH = os.environ.get("PATH", "")
VIEW = RealFilesystem(os.path.expanduser("~"))
ROUNDS = 1_000
MAX_MICROSECONDS = {**dict.fromkeys(PLAIN, 100.0), **dict.fromkeys(GIT, 250.0)}
CACHES = (_parse_cached, _survey_cached, files_read, unwrap)


def rules(**texts: tuple[str, ...]) -> RuleSet:
    kinds: tuple[Behavior, ...] = ("allow", "deny")
    read = [parse_rule(f"Bash({text})", kind, "user", CWD) for kind in kinds for text in texts.get(kind, ())]
    return RuleSet(cwd=CWD, rules=tuple(rule for rule in read if isinstance(rule, Rule)))


def decision(rules: RuleSet) -> Callable[[str], None]:
    def work(command: str) -> None:
        decide(ToolRequest(tool="Bash", input={"command": command}, cwd=CWD, search_path=PATH), rules, "default", VIEW)

    return work


def classify(command: str) -> None:
    line = parse_strict(command)
    if isinstance(line, CommandLine):
        _ = is_read_only(line) or is_allowed_by(line, ALLOWED)
        find_targets(line, CWD)


def search(command: str) -> None:
    find_denied(command, DENIED)
    is_unresolved(command)


def microseconds(work: Callable[[str], None], command: str) -> float:
    work(command)
    taken = []
    for _ in range(ROUNDS):
        for function in CACHES:
            function.cache_clear()
        started = time.thread_time_ns()
        work(command)
        taken.append((time.thread_time_ns() - started) / 1_000)
    return statistics.median(taken)


WORKS = (decision(rules(allow=ALLOWED)), decision(rules(allow=ALLOWED, deny=DENIED)), classify, search)


def main() -> int:
    is_too_slow = False
    sys.stdout.write("decide   + deny classify   search\n")
    for command in (*PLAIN, *GIT, *LONGER, *UNPROVEN):
        taken = [microseconds(work, command) for work in WORKS]
        is_too_slow = is_too_slow or taken[0] > MAX_MICROSECONDS.get(command, math.inf)
        sys.stdout.write(f"{'  '.join(f'{each:6.1f}' for each in taken)}  us  {command}\n")
    return 1 if is_too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
