"""Whether rules allow a proven line: every simple command needs its own rule, or only reads."""

from __future__ import annotations

from collections.abc import Sequence

from parley.permissions.shell import assignments
from parley.permissions.shell.patterns import is_exact, is_open, matches
from parley.permissions.shell.readonly import reads_only, strays
from parley.permissions.shell.simple import Line, Simple, names
from parley.permissions.shell.wrappers import WRAPPERS, Inner, unwrapped

# Builtins that evaluate their words (`printf -v 'a[$(id)]' 1` runs id) or change what later words mean.
EVALUATES = names(
    "eval source . exec trap alias unalias printf test [ [[ read mapfile readarray unset declare typeset local export "
    "readonly let getopts wait enable hash bind complete compgen compopt fc set shopt jobs history coproc"
)
# Programs that run other programs in ways a prefix says nothing about.
NEVER_BY_PREFIX = names("env sudo doas su runuser watch setsid ionice flock chroot unshare nsenter find parallel")


def allowed_by(line: Line, patterns: Sequence[str], *, cwd: str = "", writes: bool = False) -> bool:
    """Whether every command of the line is allowed by some pattern or only reads.

    A line that redirects into a file is not allowed, unless `writes` says that its targets were judged
    already. `cd` to `cwd` is no move.
    """
    if any(is_exact(pattern) and matches(pattern, line.text) for pattern in patterns):
        return True
    return all(_allowed(command, patterns, writes) for command in line.commands) and not strays(line, cwd)


def _allowed(command: Simple, patterns: Sequence[str], writes: bool) -> bool:
    if any(is_exact(pattern) and matches(pattern, command.text) for pattern in patterns):
        return True
    if not command.argv or not assignments.are_safe(command):
        return False
    if not writes and any(redirect.writes for redirect in command.redirects):
        return False
    if reads_only_by_its_words(command):
        return True
    inner = unwrapped(command)
    if inner is None:
        return False
    name = inner.argv[0].rpartition("/")[2]
    if name in EVALUATES or name in NEVER_BY_PREFIX or name in WRAPPERS:
        return any(is_exact(pattern) and _fits(pattern, inner) for pattern in patterns)
    return any(_fits(pattern, inner) for pattern in patterns)


def reads_only_by_its_words(command: Simple) -> bool:
    """The redirections were judged before."""
    bare = Simple(argv=command.argv, words=command.words, text=command.text, globs=command.globs)
    return reads_only(bare)


def _fits(pattern: str, inner: Inner) -> bool:
    """Words that are only known when the command runs must fall under the star at the pattern's end."""
    if not matches(pattern, " ".join(inner.words)):
        return False
    if not inner.open and not inner.globs:
        return True
    known = inner.words[: inner.globs[0]] if inner.globs else inner.words
    return is_open(pattern) and matches(pattern, " ".join(known))
