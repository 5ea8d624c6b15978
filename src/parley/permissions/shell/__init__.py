"""Bash commands as the permission engine sees them.

    line = read("git status && ls")     a `Line` if every word is proven, else `Unclear`
    is_read_only(line)                  may run without a rule
    allowed_by(line, ["npm test:*"])    may run by these rules
    finds(command, ["git push:*"])      is denied or asked for by these rules, on any text
    unresolved(command)                 something in it is only known when it runs
    may_find(command, ["git push:*"])   it could be what these rules speak of, once it runs
    targets(line, cwd, view)            the files it reads and writes
    tracked(line, cwd, view)            the same, and command by command
    is_critical_delete(command, ...)    removes what nobody wants removed
    glimpse(command, ...)               files it names, in whatever it runs

Only `read` leads to an allow; it refuses whatever it cannot prove. `finds` errs on the other side.
"""

from parley.permissions.shell.allowing import allowed_by
from parley.permissions.shell.deletion import is_critical_delete
from parley.permissions.shell.finder import Found, finds, may_find, unresolved
from parley.permissions.shell.glimpse import Glimpse, glimpse, runs_more
from parley.permissions.shell.patterns import matches
from parley.permissions.shell.readonly import is_read_only
from parley.permissions.shell.simple import Line, Redirect, Simple, Unclear
from parley.permissions.shell.targets import Step, Targets, steps, targets, tracked
from parley.permissions.shell.tokens import read

__all__ = [
    "Found",
    "Glimpse",
    "Line",
    "Redirect",
    "Simple",
    "Step",
    "Targets",
    "Unclear",
    "allowed_by",
    "finds",
    "glimpse",
    "is_critical_delete",
    "is_read_only",
    "matches",
    "may_find",
    "read",
    "runs_more",
    "steps",
    "targets",
    "tracked",
    "unresolved",
]
