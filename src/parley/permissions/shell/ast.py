"""A proven command line: simple commands of literal words.

A `CommandLine` exists only if `parse_strict` could show that bash reads the text the same way. Every other text is
`Unclear`.
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
    """The same words as written, with their quotes."""
    text: str
    """The whole command as written, with its here-document."""
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    globs: tuple[int, ...] = ()
    """Positions in `argv` of globs."""
    before: str = ""
    """The operator before it; empty for the first command."""
    after: str = ""
    """The operator after it; empty for the last command."""
    document: str | None = None
    """The here-document that is its input, from the end of the command's line to the end mark."""


class CommandLine(Struct, frozen=True):
    text: str
    commands: tuple[SimpleCommand, ...]

    @property
    def has_documents(self) -> bool:
        """Whether a command gets a here-document as its input."""
        return any(command.document is not None for command in self.commands)


class Unclear(Struct, frozen=True):
    """The text cannot be proven; the reason is shown to people."""

    reason: str
