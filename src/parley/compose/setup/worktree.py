"""`--worktree`: the session works in `.claude/worktrees/NAME`, on the branch `worktree-NAME`.

    with open_worktree(options, environment, cwd) as worktree:
        ...                     # build the session; if that fails, a new worktree is removed again

The worktree stays after the session: it belongs to the user. The same name continues in it.

See also: `workspace/worktrees.py` for git, `permissions/rules.py` for rules in a worktree.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from parley.errors import ToolError, UsageError
from parley.protocol.options import CliOptions
from parley.settings.env_vars import child_environment, is_truthy
from parley.workspace.base import Worktree
from parley.workspace.git import Git
from parley.workspace.process.processes import Processes
from parley.workspace.worktrees import GitWorktrees

MAX_NAME = 64
PART = r"(?!\.\.?(?:/|$))[A-Za-z0-9._-]+"


@contextmanager
def open_worktree(options: CliOptions, environment: dict[str, str], cwd: str) -> Iterator[Worktree]:
    """Raises UsageError."""
    name = folder_name(options.worktree or f"session-{os.urandom(4).hex()}")
    if options.restricted or is_truthy(environment.get("CLAUDE_CODE_RESTRICTED")):
        raise UsageError("--worktree cannot be used in a restricted session, which runs no commands")
    with asyncio.Runner() as runner:
        processes = Processes()
        git = GitWorktrees(Git(processes, child_environment(environment), lambda: (cwd, *(options.add_dirs or ()))))
        try:
            worktree = runner.run(git.open_for_session(cwd, name))
            try:
                yield worktree
            except BaseException:
                runner.run(git.leave(worktree))
                raise
            git.keep(worktree)
        except ToolError as exc:
            raise UsageError(f"--worktree: {exc}") from None
        finally:
            runner.run(processes.close())


def folder_name(name: str) -> str:
    """The folder of a worktree: `a/b` is in `a+b`. Raises UsageError for a name that is not safe as a path."""
    if len(name) > MAX_NAME:
        raise UsageError(f"--worktree: the name has {len(name)} characters; at most {MAX_NAME} are allowed")
    if not re.fullmatch(rf"{PART}(?:/{PART})*", name):
        raise UsageError(
            f"--worktree: {name!r} is not a valid name: use letters, digits, dots, underscores and dashes, "
            "with / between parts; a part cannot be . or .."
        )
    return name.replace("/", "+")
