"""Whether rules allow a proven line: every simple command needs its own rule, or only reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parley.permissions.shell import assignments
from parley.permissions.shell.ast import Line, Simple, names
from parley.permissions.shell.readonly.check import files_read, strays
from parley.permissions.shell.rule_patterns import Patterns, is_open, matches, together
from parley.permissions.shell.wrappers import WRAPPERS, Inner, unwrapped

# Builtins that evaluate their words (`printf -v 'a[$(id)]' 1` runs id) or change what later words mean.
EVALUATES = names(
    "eval source . exec trap alias unalias printf test [ [[ read mapfile readarray unset declare typeset local export "
    "readonly let getopts wait enable hash bind complete compgen compopt fc set shopt jobs history coproc"
)
# Programs that run other programs in ways a prefix says nothing about.
NEVER_BY_PREFIX = names("env sudo doas su runuser watch setsid ionice flock chroot unshare nsenter find parallel")


def allowed_by(
    line: Line, patterns: Sequence[str], *, cwd: str = "", writes: bool = False, untrusted: Collection[str] = ()
) -> bool:
    """Whether every command of the line is allowed by some pattern or only reads.

    A line that redirects into a file is not allowed, unless `writes` says that its targets were judged
    already. `cd` to `cwd` is no move. Programs that are `untrusted` are not those that the tables mean.
    """
    known = together(tuple(patterns))
    if known.name(line.text):
        return True
    return not strays(line, cwd) and all(
        _allowed(command, patterns, known, writes, untrusted) for command in line.commands
    )


def _allowed(
    command: Simple, patterns: Sequence[str], known: Patterns, writes: bool, untrusted: Collection[str]
) -> bool:
    if known.name(command.text):
        return True
    if not command.argv or not assignments.are_safe(command):
        return False
    if not writes and any(redirect.writes for redirect in command.redirects):
        return False
    inner = unwrapped(command)
    trusts = not untrusted or (inner is not None and not {*inner.wrappers, inner.argv[0]} & set(untrusted))
    if trusts and files_read(command) is not None:
        return True
    if inner is None or set(inner.wrappers) & set(untrusted):
        return False
    name = inner.argv[0].rpartition("/")[2]
    if name in EVALUATES or name in NEVER_BY_PREFIX or name in WRAPPERS:
        return not inner.open and not inner.globs and known.name(" ".join(inner.words))
    if not inner.open and not inner.globs:
        return known.fit(" ".join(inner.words))
    return any(_fits(pattern, inner) for pattern in patterns)


def _fits(pattern: str, inner: Inner) -> bool:
    """Words that are only known when the command runs must fall under the star at the pattern's end."""
    if not matches(pattern, " ".join(inner.words)):
        return False
    known = inner.words[: inner.globs[0]] if inner.globs else inner.words
    return is_open(pattern) and matches(pattern, " ".join(known))
