"""Bash commands as the permission engine sees them.

    line = read("git status && ls")     a `Line` if every word is proven, else `Unclear`
    is_read_only(line)                  may run without a rule
    allowed_by(line, ["npm test:*"])    may run by these rules
    finds(command, ["git push:*"])      is denied or asked for by these rules, on any text
    unresolved(command)                 something in it is only known when it runs
    may_find(command, ["git push:*"])   it could be what these rules speak of, once it runs
    over_budget(command, patterns)      why it would take too long to find out
    targets(line, cwd, view)            the files it reads and writes
    tracked(line, cwd, view)            the same, and command by command
    is_critical_delete(command, ...)    removes what nobody wants removed
    glimpse(command, ...)               files it names, in whatever it runs

Only `read` leads to an allow; it refuses whatever it cannot prove. `finds` errs on the other side.
"""

from parley.permissions.shell.allowing import allowed_by
from parley.permissions.shell.ast import Line, Redirect, Simple, Unclear
from parley.permissions.shell.deletion import is_critical_delete
from parley.permissions.shell.denied.mentions import Glimpse, glimpse, runs_more
from parley.permissions.shell.denied.search import Found, finds, may_find, over_budget, unresolved
from parley.permissions.shell.readonly.check import is_read_only
from parley.permissions.shell.rule_patterns import matches
from parley.permissions.shell.strict_parser import read
from parley.permissions.shell.targets import Step, Targets, steps, targets, tracked

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
    "over_budget",
    "read",
    "runs_more",
    "steps",
    "targets",
    "tracked",
    "unresolved",
]
