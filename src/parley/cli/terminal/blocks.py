"""Splits Markdown into blocks while it arrives.

    splitter.feed("# Title\\n\\nSome te")     -> [Block("# Title\\n\\n")]
    splitter.open                           -> "Some te"
    splitter.finish()                       -> [Block("Some te")]

A block is finished when no further text can change it: all top-level blocks but the last are, all items of a list but
the last, and every line of fenced code. The sources of the blocks, in order, are the text, every character once.

Link references and images stay as they are written: a reference may be defined after the block that uses it.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

from parley.protocol.base import Struct

FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})")
LISTS = ("bullet_list_open", "ordered_list_open")


class Block(Struct, frozen=True, kw_only=True):
    source: str
    kind: str = "block"
    """`block`, `item` of a list, or a line of fenced code: `fence` for the first, `end` for the last, else `code`."""
    number: int | None = None
    """The number of an item of an ordered list."""
    indent: int = 0
    """How many spaces of the indentation of a line of code belong to the fence."""


class Fence(Struct, frozen=True):
    """Code that has begun."""

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
    def open_block(self) -> Block:
        """The open text as it looks now."""
        if self._fence is not None:
            is_end = self._fence.is_closed_by(self.open)
            return Block(source=self.open, kind="end" if is_end else "code", indent=self._fence.indent)
        return Block(source=self.open, kind=self._kind, number=self._number)

    def feed(self, text: str) -> list[Block]:
        """Add text; returns the blocks that are finished now."""
        self.open += text
        return self._split(is_end=False)

    def finish(self) -> list[Block]:
        """The blocks of the rest."""
        blocks = self._split(is_end=True)
        self._fence, self._kind, self._number = None, "block", None
        return blocks

    def _split(self, *, is_end: bool) -> list[Block]:
        blocks: list[Block] = []
        while self.open:
            # An incomplete line can still become anything.
            complete = self.open if is_end else self.open[: self.open.rfind("\n") + 1]
            found = self._split_code(complete) if self._fence is not None else self._split_text(complete, is_end=is_end)
            self.open = self.open[sum(len(block.source) for block in found) :]
            blocks += found
            if not found:
                break
        return blocks

    def _split_code(self, text: str) -> list[Block]:
        """The lines of code in the text, and the line that ends them."""
        fence = self._fence
        assert fence is not None
        blocks: list[Block] = []
        for line in split_lines(text):
            if fence.is_closed_by(line):
                self._fence = None
                return [*blocks, Block(source=line, kind="end", indent=fence.indent)]
            blocks.append(Block(source=line, kind="code", indent=fence.indent))
        return blocks

    def _split_text(self, text: str, *, is_end: bool) -> list[Block]:
        """The finished blocks at the start of the text, up to code that begins."""
        lines, starts = split_lines(text), self._find_starts(text)
        blocks: list[Block] = []
        for at, (line, kind, number) in enumerate(starts):
            first = line if at else 0  # blank lines at the start belong to the first block
            is_last = at == len(starts) - 1
            if kind == "fence" and (found := FENCE.match(lines[line])) is not None:
                self._fence, self._kind, self._number = Fence(found[2], len(found[1])), "block", None
                return [*blocks, Block(source="".join(lines[first : line + 1]), kind=kind, indent=len(found[1]))]
            if is_last and not is_end:
                self._kind, self._number = kind, number
                return blocks
            end = len(lines) if is_last else starts[at + 1][0]
            blocks.append(Block(source="".join(lines[first:end]), kind=kind, number=number))
        return [Block(source=text)] if is_end and not starts else blocks

    def _find_starts(self, text: str) -> list[tuple[int, str, int | None]]:
        """First line, kind and number of each block and list item."""
        starts: list[tuple[int, str, int | None]] = []
        number = self._number
        # A lone carriage return would end a line for the parser alone.
        for token in self._parser.parse(text.replace("\r", " ")):
            if token.map is None:
                continue
            if token.type in LISTS and token.level == 0:
                is_ordered = token.type == "ordered_list_open"
                if not starts and number is not None and is_ordered:
                    continue
                number = int(token.attrs.get("start", 1)) if is_ordered else None
            elif token.type == "list_item_open" and token.level == 1:
                starts.append((token.map[0], "item", number))
                number = None if number is None else number + 1
            elif token.level == 0 and token.nesting >= 0:
                starts.append((token.map[0], "fence" if token.type == "fence" else "block", None))
        return starts


def split_lines(text: str) -> list[str]:
    """The lines with their ends. Only `\\n` ends a line."""
    return re.findall("[^\n]*\n|[^\n]+", text)
