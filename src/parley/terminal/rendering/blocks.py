"""Splits Markdown into blocks while it arrives.

    splitter.feed("# Title\\n\\nSome te")     -> [MarkdownBlock("# Title\\n\\n")]
    splitter.open                           -> "Some te"
    splitter.finish()                       -> [MarkdownBlock("Some te")]

A block is finished when no further text can change it: a heading with its line, a paragraph with the blank line after
it, every line of fenced code, and all items of a list but the last. The sources of the blocks, in order, are the text,
every character once.

Link references and images stay as they are written: a reference may be defined after the block that uses it.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

from parley.protocol.base import Struct

FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})")
CLOSING = {
    "heading_open": "line",
    "hr": "line",
    "paragraph_open": "blank",
    "blockquote_open": "blank",
    "table_open": "blank",
}
"""What ends a block: its own last line, a blank line, or else only the next block."""
LISTS = ("bullet_list_open", "ordered_list_open")


class MarkdownBlock(Struct, frozen=True, kw_only=True):
    source: str
    kind: str = "block"
    """`block`, `item` of a list, or a line of fenced code: `fence` for the first, `end` for the last, else `code`."""
    number: int | None = None
    """The number of an item of an ordered list."""
    indent: int = 0
    """How many spaces of the indentation of a line of code belong to the fence."""


class ParsedBlock(Struct, frozen=True):
    """A block in the open text: its first line, the line after it, and what ends it."""

    start: int
    end: int
    kind: str
    closing: str
    number: int | None = None


class Fence(Struct, frozen=True):
    """Code that has started."""

    marker: str
    indent: int

    def is_closed_by(self, line: str) -> bool:
        return re.fullmatch(rf" {{0,3}}{self.marker}{self.marker[0]}*[ \t\r]*\n?", line) is not None


def make_parser() -> MarkdownIt:
    """The parser for blocks and for their text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable(["reference", "image", "html_block", "html_inline"])


class BlockSplitter:
    def __init__(self) -> None:
        self._parser = make_parser()
        self._fence: Fence | None = None
        self._kind = "block"
        self._number: int | None = None
        """Kind of the open block, and its number if earlier items of its list are finished."""
        self.open = ""
        """The text that is not finished."""

    @property
    def open_block(self) -> MarkdownBlock:
        """The open text as it looks now."""
        if self._fence is not None:
            is_end = self._fence.is_closed_by(self.open)
            return MarkdownBlock(source=self.open, kind="end" if is_end else "code", indent=self._fence.indent)
        return MarkdownBlock(source=self.open, kind=self._kind, number=self._number)

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Add text; returns the blocks that are finished now."""
        self.open += text
        return self._split(is_end=False) if "\n" in text else []

    def finish(self) -> list[MarkdownBlock]:
        """The blocks of the rest."""
        blocks = self._split(is_end=True)
        self._fence, self._kind, self._number = None, "block", None
        return blocks

    def _split(self, *, is_end: bool) -> list[MarkdownBlock]:
        blocks: list[MarkdownBlock] = []
        while self.open:
            # An incomplete line can still become anything.
            complete = self.open if is_end else self.open[: self.open.rfind("\n") + 1]
            found = self._split_code(complete) if self._fence is not None else self._split_text(complete, is_end=is_end)
            self.open = self.open[sum(len(block.source) for block in found) :]
            blocks += found
            if not found:
                break
        return blocks

    def _split_code(self, text: str) -> list[MarkdownBlock]:
        """The lines of code in the text, and the line that ends them."""
        fence = self._fence
        assert fence is not None
        blocks: list[MarkdownBlock] = []
        for line in split_lines(text):
            if fence.is_closed_by(line):
                self._fence = None
                return [*blocks, MarkdownBlock(source=line, kind="end", indent=fence.indent)]
            blocks.append(MarkdownBlock(source=line, kind="code", indent=fence.indent))
        return blocks

    def _split_text(self, text: str, *, is_end: bool) -> list[MarkdownBlock]:
        """The finished blocks at the start of the text, up to code that begins."""
        lines, found = split_lines(text), self._parse(text)
        blocks: list[MarkdownBlock] = []
        start = 0
        for at, one in enumerate(found):
            if one.kind == "fence" and (fence := FENCE.match(lines[one.start])) is not None:
                self._fence, self._kind, self._number = Fence(fence[2], len(fence[1])), "block", None
                return [*blocks, make_block("fence", lines[start : one.start + 1], indent=len(fence[1]))]
            is_last, end = at == len(found) - 1, one.end
            is_closed = is_end or not is_last or one.closing == "line"
            if one.closing == "next":
                end = len(lines) if is_last else found[at + 1].start
            elif one.closing == "blank" and end < len(lines) and not lines[end].strip():
                is_closed, end = True, end + 1
            if not is_closed:
                self._kind, self._number = one.kind, one.number
                return blocks
            blocks.append(make_block(one.kind, lines[start:end], number=one.number))
            start = end
        self._kind, self._number = "block", None
        return [*blocks, make_block("block", lines[start:])] if is_end and start < len(lines) else blocks

    def _parse(self, text: str) -> list[ParsedBlock]:
        """The top-level blocks, and the items of top-level lists."""
        found: list[ParsedBlock] = []
        number = self._number
        # A lone carriage return would end a line for the parser alone.
        for token in self._parser.parse(text.replace("\r", " ")):
            if token.map is None or token.nesting < 0:
                continue
            if token.type in LISTS and token.level == 0:
                is_ordered = token.type == "ordered_list_open"
                if found or number is None or not is_ordered:
                    number = int(token.attrs.get("start", 1)) if is_ordered else None
            elif token.type == "list_item_open" and token.level == 1:
                found.append(ParsedBlock(token.map[0], token.map[1], "item", "next", number))
                number = None if number is None else number + 1
            elif token.level == 0:
                kind = "fence" if token.type == "fence" else "block"
                found.append(ParsedBlock(token.map[0], token.map[1], kind, CLOSING.get(token.type, "next")))
        return found


def make_block(kind: str, lines: list[str], *, number: int | None = None, indent: int = 0) -> MarkdownBlock:
    return MarkdownBlock(source="".join(lines), kind=kind, number=number, indent=indent)


def split_lines(text: str) -> list[str]:
    """The lines with their ends. Only `\\n` ends a line."""
    return re.findall("[^\n]*\n|[^\n]+", text)
