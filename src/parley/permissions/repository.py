"""Whether git would take a folder of the working tree itself for a repository, and do what its configuration says.

A folder with `HEAD`, `objects` and `refs` is one to git, and nothing keeps a working tree from having such a folder:
its `config` may name a program that `git status` runs.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from parley.permissions.base import View
from parley.permissions.shell import Line
from parley.permissions.shell.wrappers import unwrapped

OWN = ".git"
MARKS = ("HEAD", "objects", "refs")


def runs_git(line: Line) -> bool:
    return any(inner is None or os.path.basename(inner.argv[0]) == "git" for inner in map(unwrapped, line.commands))


def is_planted(cwd: str, view: View, made: Collection[str]) -> bool:
    """Whether the repository that git finds from a folder is no `.git`. `made` is what the line itself makes."""
    folder = view.way(cwd).real
    while folder is not None:
        if view.has(os.path.join(folder, OWN)):
            return False
        marks = [os.path.join(folder, mark) for mark in MARKS]
        if all(view.has(mark) or mark in made for mark in marks):
            return True
        folder = os.path.dirname(folder) if folder != "/" else None
    return False
