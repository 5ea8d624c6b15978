r"""Rules for commands: what the contents of a Bash rule match, and whether rules allow a proven line.

    git status        exactly this command
    npm run test:*    this command, alone or followed by a blank and anything; the same as `npm run test *`
    git * main        `*` matches any text, blanks included
    ls*               no blank before the star: matches `lsof` too

`\*` is a literal star. Matching takes time linear in the text, whatever the pattern. To allow a line, every simple
command must match a rule of its own, or only read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from parley.permissions.base import word_set
from parley.permissions.patterns import matches_pieces
from parley.permissions.shell.arguments import RUNNERS, UnwrappedCommand, unwrap
from parley.permissions.shell.readers import files_read, has_safe_assignments, leaves_folder
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand
from parley.protocol.base import Struct

STAR = re.compile(r"(?<!\\)\*+")
# Builtins that evaluate their words (`printf -v 'a[$(id)]' 1` runs id) or change what later words mean.
EVALUATES = word_set(
    "eval source . exec trap alias unalias printf test [ [[ read mapfile readarray unset declare typeset local export "
    "readonly let getopts wait enable hash bind complete compgen compopt fc set shopt jobs history coproc"
)
# Runners that have their own checks (shell/prefix_rules.py), and those that start the tools of a project, as `npm run`
# and `make` do: a rule for them means all these tools.
BY_PREFIX = word_set(
    "ssh autossh mosh npx bunx pwsh powershell cross-env env-cmd nodemon concurrently onchange chokidar watchexec "
    "reflex"
)
# Programs that run other programs; a rule for their beginning does not say which.
NEVER_BY_PREFIX = (RUNNERS.keys() | word_set("find run-parts")) - BY_PREFIX
# Programs besides readers that only pass their input on, and never run it.
DATA_READERS = word_set("tee")
PIPES = ("|", "|&")


class _CompiledPattern(Struct, frozen=True):
    pieces: tuple[str, ...]
    """The texts between the stars; one piece if there is no star."""
    without_star: tuple[str, ...] | None
    """The pieces without a final ` *`, which may match nothing; None if there is no such end."""


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> _CompiledPattern:
    text = pattern.strip()
    if text.endswith(":*"):
        text = text[:-2] + " *"
    if text.strip() in ("", "*"):
        return _CompiledPattern(("", ""), None)
    pieces = _split_pieces(text)
    return _CompiledPattern(pieces, _split_pieces(text[:-2]) if text.endswith(" *") else None)


def _split_pieces(text: str) -> tuple[str, ...]:
    return tuple(piece.replace("\\*", "*") for piece in STAR.split(text))


def matches(pattern: str, command: str) -> bool:
    """Whether a rule matches one simple command."""
    return _matches(_compile(pattern), command.strip())


def _matches(found: _CompiledPattern, text: str) -> bool:
    if not text.startswith((found.without_star or found.pieces)[0]):
        return False
    return matches_pieces(found.pieces, text) or (
        found.without_star is not None and matches_pieces(found.without_star, text)
    )


class PatternSet(Struct, frozen=True):
    """Several patterns, matched together; exact ones by a lookup."""

    exact: frozenset[str]
    starred: tuple[_CompiledPattern, ...]
    prefix: re.Pattern[str]
    """Matches the beginning of each starred pattern."""

    def has_exact(self, command: str) -> bool:
        """Whether one of the patterns is exactly this command."""
        return command.strip() in self.exact

    def matches(self, command: str) -> bool:
        """Whether one of the patterns matches this command."""
        text = command.strip()
        if text in self.exact:
            return True
        return self.prefix.match(text) is not None and any(_matches(found, text) for found in self.starred)


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[str, ...]) -> PatternSet:
    found = [_compile(pattern) for pattern in patterns]
    exact = frozenset(pattern.pieces[0] for pattern in found if len(pattern.pieces) == 1)
    starred = tuple(pattern for pattern in found if len(pattern.pieces) > 1)
    # A final ` *` may match nothing, so the blank before it is optional.
    begins = {re.escape((pattern.without_star or pattern.pieces)[0]) for pattern in starred}
    return PatternSet(exact, starred, re.compile("|".join(sorted(begins)) if begins else r"(?!)"))


def may_match(pattern: str, beginning: str) -> bool:
    """Whether a rule could match a command with this beginning."""
    first = _compile(pattern).pieces[0]
    return first.startswith(beginning) or beginning.startswith(first)


def is_open_ended(pattern: str) -> bool:
    """Whether the pattern ends in a star, so that a match stays a match with more words."""
    return _compile(pattern).pieces[-1] == "" and not is_exact(pattern)


def is_exact(pattern: str) -> bool:
    """Whether the pattern has no star, so that it matches one text only."""
    return len(_compile(pattern).pieces) == 1


def is_allowed_by(
    line: CommandLine,
    patterns: Sequence[str],
    *,
    cwd: str = "",
    writes: bool = False,
    untrusted: Collection[str] = (),
    fed: Collection[SimpleCommand] = (),
    inspects_git: bool = False,
) -> bool:
    """Whether every command of the line matches a pattern or only reads.

    A line that redirects into a file is not allowed, unless `writes` says that its targets are approved. `cd` to `cwd`
    changes nothing. `untrusted` are program names that would run other programs than those in the tables. `fed` are
    commands that only read files that another command names. See `leaves_folder` for `inspects_git`.
    """
    compiled = compile_patterns(tuple(patterns))
    if compiled.has_exact(line.text):
        return True
    has_documents = line.has_documents
    return not leaves_folder(line, cwd, inspects_git=inspects_git) and all(
        command in fed or _is_allowed(command, patterns, compiled, writes, untrusted, has_documents=has_documents)
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
    if inner is None or command.opaque or command.split or set(inner.wrappers) & set(untrusted):
        return False
    if (is_piped or command.document is not None) and (inner.wrappers or inner.argv[0] not in DATA_READERS):
        return False
    if inner.name in EVALUATES or inner.name in NEVER_BY_PREFIX:
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
