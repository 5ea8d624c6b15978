"""What a command line is once it has been proven: simple commands of literal words.

Nothing in here is guessed. A `CommandLine` exists only if `parse_strict` could show that bash reads the
text the same way; everything else is `Unclear`.
"""

from __future__ import annotations

from parley.protocol.base import Struct

DEV_NULL = "/dev/null"


class Redirect(Struct, frozen=True):
    """`2>&1` is `("2", ">&", "1")`, `< notes` is `("", "<", "notes")`."""

    descriptor: str
    operator: str
    target: str

    @property
    def writes(self) -> bool:
        """Whether a file other than /dev/null may be opened for writing."""
        return self.operator not in ("<", ">&") and self.target != DEV_NULL

    @property
    def reads(self) -> bool:
        return self.operator in ("<", "<>") and self.target != DEV_NULL


class SimpleCommand(Struct, frozen=True, cache_hash=True):
    """One simple command. `argv` is what the program gets, unless a word is in `globs`."""

    argv: tuple[str, ...]
    words: tuple[str, ...]
    """The same words as they are spelled, quotes and all."""
    text: str
    """The whole command as it is spelled, from its first byte to its last, and the here-document that it gets."""
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    globs: tuple[int, ...] = ()
    """Positions in `argv` of words that stand for whatever files are there."""
    before: str = ""
    """The operator in front; empty for the first command."""
    after: str = ""
    """The operator behind; empty for the last command."""
    document: str | None = None
    """The here-document that is its input, from the end of the command's line to the mark."""


class CommandLine(Struct, frozen=True):
    text: str
    commands: tuple[SimpleCommand, ...]

    @property
    def has_documents(self) -> bool:
        """Whether a command gets a here-document as its input."""
        return any(command.document is not None for command in self.commands)


class Unclear(Struct, frozen=True):
    """The text cannot be proven to be harmless; the reason is for people."""

    reason: str


def word_set(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())
