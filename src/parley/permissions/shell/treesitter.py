"""Parse texts that the strict parser cannot prove, with a full grammar. Used only to find denied commands.

tree-sitter-bash parses subshells, loops, functions, substitutions and here-documents. It misses some commands without
an error; `split_fragments` cuts the text at everything that may begin a command and finds those too, along with some
false ones.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from parley.permissions.base import describe_excess
from parley.protocol.base import Struct

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

COMMAND_NODES = frozenset(["command", "declaration_command", "unset_command", "test_command"])
NON_WORD_NODES = frozenset(
    ["variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect", "comment"]
)
ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
ESCAPE_IN_QUOTES = re.compile(r'\\(\n|[\\"$`])')
ANSI = re.compile(
    r"\\(?:x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<u>[0-9A-Fa-f]{1,4})|U(?P<U>[0-9A-Fa-f]{1,8})|(?P<octal>[0-7]{1,3})|(?P<c>.))",
    re.DOTALL,
)
ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
EXPANDS = re.compile(r"(?<!\\)[*?\[{]|^~")
BOUNDARY = re.compile(r"[;&|\n\r(){}`]|\$\[|\b(?:then|do|else|elif|if|while|until|time|coproc)\b|!\s")
RUN_BY_DOCUMENT = re.compile(rb"(?:\$\(|`)([^)`]*)")
QUOTES = re.compile(r"[\'\"\\]")

MAX_CHARACTERS = 10_000
MAX_MARKS = 700
MARK = re.compile(r"[\n&|(){}\[\]$`<>;]|\b(?:function|case|esac|select|if|then|for|while|until|do|coproc)\b")
HEAVY_MARK = re.compile(r"\||;;|\bfunction\b|<<")
"""The parser's time and memory grow with the square of the number of these."""
HEAVY_MARK_COST = 3
MAX_NODES = 6_000
MAX_DOCUMENTS = 20
MAX_READS = 2_000
"""How often the parser may read a piece of the text; it reads a malformed text many times."""
PIECE_BYTES = 256
PLAIN_LINE = re.compile(r"(?:[\w ./:,@%+=^~*?!&|;>-]|<(?!<))*")
DOCUMENT_LINE = re.compile(rf"{PLAIN_LINE.pattern}<<[ ]?(?P<quote>['\"])(?P<mark>\w+)(?P=quote){PLAIN_LINE.pattern}")


class TooComplex(Exception):
    """The text is too large or too complex to parse."""


class CommandWords(Struct, frozen=True):
    """The words of a command; None for a word that is only known at run time."""

    words: tuple[str | None, ...]
    raw_words: tuple[str, ...]


class ParsedScript(Struct, frozen=True):
    commands: tuple[CommandWords, ...]
    inputs: tuple[str, ...]
    """The texts of here-documents and here-strings."""
    rest: str
    """The text without its here-documents, except for the substitutions in them."""
    has_error: bool
    redirects: tuple[tuple[str, str], ...] = ()
    """Operators and files; a file is as written if its value is unknown."""
    assignments: tuple[str, ...] = ()
    """`name=value`, if the value is known."""
    unknown_assignments: tuple[str, ...] = ()
    """The other assignments, as written."""


class _Parsers(threading.local):
    """A parser for each thread: two threads in one parser end the process."""

    @cached_property
    def current(self) -> Parser:
        import tree_sitter
        import tree_sitter_bash

        return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


_parsers = _Parsers()


def parse(command: str) -> ParsedScript:
    """Raises TooComplex."""
    command, documents = strip_documents(command)
    source = command.encode("utf-8", "surrogatepass")
    root = _parse_root(command, source)
    commands: list[CommandWords] = []
    inputs: list[str] = [*documents]
    kept: list[bytes] = []
    redirects: list[tuple[str, str]] = []
    assignments: list[str] = []
    unknown: list[str] = []
    offset, quoted = 0, False
    pending = [root]
    while pending:
        node = pending.pop()
        pending.extend(reversed(node.children))
        if node.type in COMMAND_NODES:
            commands.append(_read_command(node, source))
        elif node.type == "heredoc_start":
            quoted = _node_text(node, source)[:1] in ("'", '"', "\\")
        elif node.type == "heredoc_body":
            inputs.append(_node_text(node, source))
            kept += [
                source[offset : node.start_byte],
                b"" if quoted else b";".join(RUN_BY_DOCUMENT.findall(source[node.start_byte : node.end_byte])),
            ]
            offset = node.end_byte
        elif node.type == "file_redirect" and len(node.children) > 1:
            redirects.append(_read_redirect(node, source))
        elif node.type == "variable_assignment" and len(node.named_children) > 1:
            value = _literal_value(node.named_children[-1], source)
            name = _node_text(node.named_children[0], source)
            if value is None:
                unknown.append(_node_text(node, source))
            else:
                assignments.append(f"{name}={value}")
        elif node.type == "herestring_redirect":
            inputs.extend(_literal_value(child, source) or _node_text(child, source) for child in node.named_children)
    rest = b"\n".join([*kept, source[offset:]]).decode("utf-8", "surrogatepass")
    return ParsedScript(
        tuple(commands), tuple(inputs), rest, root.has_error, tuple(redirects), tuple(assignments), tuple(unknown)
    )


@lru_cache(maxsize=4)
def strip_documents(command: str) -> tuple[str, tuple[str, ...]]:
    """The text without its quoted here-documents, as far as they are certain, and their contents."""
    if "<<" not in command:
        return command, ()
    lines, kept, documents, at = command.split("\n"), list[str](), list[str](), 0
    while at < len(lines) and len(lines[at]) < MAX_CHARACTERS and len(documents) < MAX_DOCUMENTS:
        found = DOCUMENT_LINE.fullmatch(lines[at])
        if found is None and not PLAIN_LINE.fullmatch(lines[at]):
            break  # a quote may begin here
        kept.append(lines[at])
        at += 1
        if found is not None:
            end = next((end for end in range(at, len(lines)) if lines[end] == found["mark"]), None)
            if end is None:
                break
            documents.append("\n".join(lines[at:end]))
            at = end
    return "\n".join([*kept, *lines[at:]]), tuple(documents)


def _parse_root(command: str, source: bytes) -> Node:
    if len(command) > MAX_CHARACTERS:
        raise TooComplex(describe_excess("The command is too long", len(command), MAX_CHARACTERS, "characters"))
    marks = sum(1 for _ in MARK.finditer(command)) + HEAVY_MARK_COST * sum(1 for _ in HEAVY_MARK.finditer(command))
    if marks > MAX_MARKS:
        raise TooComplex(
            describe_excess("The command has too many operators and brackets", marks, MAX_MARKS, "counted")
        )
    reads = 0

    def piece(offset: int, _: object) -> bytes:
        nonlocal reads
        reads += 1
        return source[offset : offset + PIECE_BYTES] if reads < MAX_READS else b""

    root = _parsers.current.parse(piece).root_node
    if reads >= MAX_READS or root.descendant_count > MAX_NODES:
        raise TooComplex("The command is too deeply nested or too malformed to check")
    return root


def split_fragments(command: str) -> Iterator[CommandWords]:
    """Every piece of text after something that may begin a command, without quotes."""
    for piece in BOUNDARY.split(command.replace("\\\n", "")):
        words = tuple(QUOTES.sub("", piece).split())
        if words:
            yield CommandWords(words, words)


def _read_command(node: Node, source: bytes) -> CommandWords:
    parts = [child for child in node.children if child.type not in NON_WORD_NODES]
    if node.type == "command":
        parts = [child for child in parts if child.is_named]
    raw_words = tuple(_node_text(part, source) for part in parts)
    words = [_literal_value(part, source) for part in parts]
    if parts and EXPANDS.search(raw_words[0]) and parts[0].named_child_count <= 1 and not _is_quoted(raw_words[0]):
        words[0] = None
    return CommandWords(tuple(words), raw_words)


def _read_redirect(node: Node, source: bytes) -> tuple[str, str]:
    operator = next((_node_text(child, source) for child in node.children if not child.is_named), ">")
    target = node.children[-1]
    return operator, _literal_value(target, source) or _node_text(target, source)


def may_expand(raw: str) -> bool:
    """Whether a word may expand to others: it has a glob or a brace outside quotes."""
    return EXPANDS.search(raw) is not None and not _is_quoted(raw)


def _is_quoted(text: str) -> bool:
    return text[:1] in ("'", '"') or text in ("[", "[[")


def _node_text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")


def _literal_value(node: Node, source: bytes) -> str | None:
    """The value of a word; None if it is only known at run time."""
    text = _node_text(node, source)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "ansi_c_string":
        return ANSI.sub(_decode_ansi, text[2:-1])
    if node.type == "string":
        plain = all(child.type in ("string_content", '"') for child in node.children)
        return ESCAPE_IN_QUOTES.sub(_unescape, text[1:-1]) if plain else None
    if node.type in ("concatenation", "command_name", "translated_string"):
        parts = [_literal_value(child, source) for child in node.named_children]
        return None if None in parts else "".join(part or "" for part in parts)
    if node.type in ("word", "number", "variable_name") or not node.named_children:
        return None if "expansion" in node.type else ESCAPE.sub(_unescape, text)
    return None


def _unescape(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[1]


def _decode_ansi(found: re.Match[str]) -> str:
    code = found["hex"] or found["u"] or found["U"]
    if code:
        return chr(min(int(code, 16), 0x10FFFF))
    if found["octal"]:
        return chr(int(found["octal"], 8) & 0xFF)
    return ANSI_LETTERS.get(found["c"], found["c"])
