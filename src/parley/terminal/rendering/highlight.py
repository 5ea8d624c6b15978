"""Colours of code, with `pygments`, which `rich` of the extra `tui` brings. Pure.

    lexer = find_lexer("python")                        None if the language is not known
    highlight("def f():", lexer, styles)                the same text with colours

The text is one that is safe already. Colours never change it: if a lexer does, there are none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound

from parley.terminal.rendering.style import Styles

MAX_CHARS = 8_000
MAX_LINE_CHARS = 400
"""Some lexers take very long for long lines."""
MAX_NAME_CHARS = 30
PAINTS = {
    Token.Comment: "dim",
    Token.Keyword: "accent",
    Token.Literal.String: "good",
    Token.Literal.Number: "warning",
    Token.Name.Function: "code",
    Token.Name.Class: "code",
    Token.Name.Decorator: "code",
    Token.Name.Builtin: "code",
    Token.Name.Tag: "accent",
    Token.Name.Attribute: "code",
}
"""Which style of a theme a kind of token has; its children have it too."""


@lru_cache(maxsize=100)
def find_lexer(language: str = "", path: str = "") -> Lexer | None:
    """The lexer of a language, or of a file by its name."""
    if not (language or path) or max(len(language), len(path.rpartition("/")[2])) > MAX_NAME_CHARS:
        return None
    options: dict[str, Any] = {"stripnl": False, "ensurenl": False}
    try:
        return get_lexer_by_name(language, **options) if language else get_lexer_for_filename(path, **options)
    except ClassNotFound:
        return None


def highlight(text: str, lexer: Lexer, styles: Styles) -> str | None:
    """The text with colours; None if the lexer cannot take it."""
    if len(text) > MAX_CHARS or any(len(line) > MAX_LINE_CHARS for line in text.split("\n")):
        return None
    tokens = list(lexer.get_tokens(text))
    if "".join(part for _, part in tokens) != text:
        return None
    # Each line has its own colours, because each is printed by itself.
    return "".join("\n".join(paint(line, kind, styles) for line in part.split("\n")) for kind, part in tokens)


def paint(text: str, kind: Any, styles: Styles) -> str:
    while kind is not None and kind not in PAINTS:
        kind = kind.parent
    return text if kind is None or not text.strip() else str(getattr(styles, PAINTS[kind])(text))
