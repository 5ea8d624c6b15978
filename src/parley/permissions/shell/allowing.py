"""Whether rules allow a proven line: every simple command must match a rule of its own, or only read."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parley.permissions.base import word_set
from parley.permissions.shell.readonly.check import files_read, has_safe_assignments, leaves_folder
from parley.permissions.shell.rule_patterns import PatternSet, compile_patterns, is_open_ended, matches
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand
from parley.permissions.shell.wrappers import WRAPPERS, UnwrappedCommand, unwrap

# Builtins that evaluate their words (`printf -v 'a[$(id)]' 1` runs id) or change what later words mean.
EVALUATES = word_set(
    "eval source . exec trap alias unalias printf test [ [[ read mapfile readarray unset declare typeset local export "
    "readonly let getopts wait enable hash bind complete compgen compopt fc set shopt jobs history coproc"
)
# Programs that run other programs; a rule for their beginning does not say which.
NEVER_BY_PREFIX = word_set("env sudo doas su runuser watch setsid ionice flock chroot unshare nsenter find parallel")
# Programs besides readers that only pass their input on, and never run it.
DATA_READERS = word_set("tee")
PIPES = ("|", "|&")


def is_allowed_by(
    line: CommandLine, patterns: Sequence[str], *, cwd: str = "", writes: bool = False, untrusted: Collection[str] = ()
) -> bool:
    """Whether every command of the line matches a pattern or only reads.

    A line that redirects into a file is not allowed, unless `writes` says that its targets are approved. `cd` to `cwd`
    changes nothing. `untrusted` are program names that would run other programs than those in the tables.
    """
    compiled = compile_patterns(tuple(patterns))
    if compiled.has_exact(line.text):
        return True
    has_documents = line.has_documents
    return not leaves_folder(line, cwd) and all(
        _is_allowed(command, patterns, compiled, writes, untrusted, has_documents=has_documents)
        for command in line.commands
    )


def _is_allowed(
    command: SimpleCommand,
    patterns: Sequence[str],
    compiled: PatternSet,
    writes: bool,
    untrusted: Collection[str],
    *,
    has_documents: bool,
) -> bool:
    """In a line with a here-document, the commands that read it, also from a pipe, must treat it as data."""
    is_piped = has_documents and command.before in PIPES
    if compiled.has_exact(command.text) and not is_piped:
        return True
    if not command.argv or not has_safe_assignments(command):
        return False
    if not writes and any(redirect.writes for redirect in command.redirects):
        return False
    inner = unwrap(command)
    is_trusted = not untrusted or (inner is not None and not {*inner.wrappers, inner.argv[0]} & set(untrusted))
    if is_trusted and files_read(command) is not None:
        return True
    if inner is None or set(inner.wrappers) & set(untrusted):
        return False
    name = inner.argv[0].rpartition("/")[2]
    if (is_piped or command.document is not None) and (inner.wrappers or inner.argv[0] not in DATA_READERS):
        return False
    if name in EVALUATES or name in NEVER_BY_PREFIX or name in WRAPPERS:
        return not inner.is_open_ended and not inner.globs and compiled.has_exact(" ".join(inner.words))
    if not inner.is_open_ended and not inner.globs:
        return compiled.matches(" ".join(inner.words))
    return any(_matches_known_words(pattern, inner) for pattern in patterns)


def _matches_known_words(pattern: str, inner: UnwrappedCommand) -> bool:
    """Words that are only known when the command runs must be covered by the final star of the pattern."""
    if not matches(pattern, " ".join(inner.words)):
        return False
    known = inner.words[: inner.globs[0]] if inner.globs else inner.words
    return is_open_ended(pattern) and matches(pattern, " ".join(known))
