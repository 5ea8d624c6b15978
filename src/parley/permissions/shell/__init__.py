"""Bash commands as the permission engine sees them.

    line = parse_strict("git status && ls")     a `CommandLine` if every word is proven, else `Unclear`
    is_read_only(line)                          may run without a rule
    is_allowed_by(line, ["npm test:*"])         may run by these rules
    find_denied(command, ["git push:*"])        a deny or ask rule matches, in any text
    is_unresolved(command)                      a part is only known when it runs
    may_find_denied(command, ["git push:*"])    a deny or ask rule could match when it runs
    explain_over_budget(command, patterns)      why the search would take too long
    find_targets(line, cwd, fs)                 the files that it reads and writes
    track_files(line, cwd, fs)                  the same, and per simple command
    is_critical_delete(command, ...)            deletes a critical folder
    find_mentions(command, ...)                 files that it names, in anything it runs

Only `parse_strict` leads to an allow; it refuses everything that it cannot prove. `find_denied` errs on the other side:
it rather finds too much.
"""

from parley.permissions.shell.command_rules import is_allowed_by, matches
from parley.permissions.shell.deny_search import (
    DenyMatch,
    explain_over_budget,
    find_denied,
    is_unresolved,
    may_find_denied,
)
from parley.permissions.shell.mentions import Mentions, find_mentions, has_nested_commands, is_critical_delete
from parley.permissions.shell.readers import is_read_only
from parley.permissions.shell.strict_parser import CommandLine, Redirect, SimpleCommand, Unclear, parse_strict
from parley.permissions.shell.targets import Step, Targets, find_targets, track_files

__all__ = [
    "CommandLine",
    "DenyMatch",
    "Mentions",
    "Redirect",
    "SimpleCommand",
    "Step",
    "Targets",
    "Unclear",
    "explain_over_budget",
    "find_denied",
    "find_mentions",
    "find_targets",
    "has_nested_commands",
    "is_allowed_by",
    "is_critical_delete",
    "is_read_only",
    "is_unresolved",
    "matches",
    "may_find_denied",
    "parse_strict",
    "track_files",
]
