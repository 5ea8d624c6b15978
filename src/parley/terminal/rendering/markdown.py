"""Formats Markdown for the terminal while it arrives. Needs the extra `tui`.

    splitter.feed("# Title\\n\\nSome te")     -> [MarkdownBlock("# Title\\n\\n")]
    splitter.open                           -> "Some te"
    splitter.finish()                       -> [MarkdownBlock("Some te")]

`BlockSplitter` splits it into blocks. A block is finished when no further text can change it: a heading with its line,
a paragraph with the blank line after it, every line of fenced code, and all items of a list but the last. The sources
of the blocks, in order, are the text, every character once. Link references and images stay as they are written: a
reference may be defined after the block that uses it.

`MarkdownAnswer` formats the blocks with `rich`. Links are shown with their addresses, because a hyperlink would hide
where it leads. Code is printed as it is, with its fence, so that it can be copied; colours of its language
do not change it. What an entity such as `&#x202e;`
stands for is revealed after formatting.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from itertools import groupby

import msgspec
from markdown_it import MarkdownIt
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListElement, ListItem, Markdown
from rich.segment import Segment
from rich.theme import Theme

from parley.protocol.base import Struct
from parley.terminal.rendering.highlight import find_lexer, highlight
from parley.terminal.rendering.style import Styles
from parley.terminal.rendering.text import reveal_text

THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold italic",
        "markdown.h6": "italic",
        "markdown.code": "cyan",
        "markdown.code_block": "cyan",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "none",
        "markdown.item.number": "none",
        "markdown.hr": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
MAX_LIVE_CHARS = 4000
"""How much of an open block is formatted to show it."""
MIN_COLUMNS = 10
"""Narrower than this, nothing useful can be laid out."""
FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})")
LANGUAGE = re.compile(r" {0,3}[`~]{3,}\s*([\w+#.-]*)")
CONTEXT_LINES = 100
"""How many lines of code before a line decide its colours, such as the start of a long string."""
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


class LeftHeading(Heading):
    LEVEL_ALIGN = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class PlainCode(CodeBlock):
    """Code inside of a list item or a quote."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.rstrip()
        self.text.no_wrap, self.text.overflow = False, "fold"
        yield self.text


class NumberedList(ListElement):
    """A list whose numbers are followed by a dot."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        start = None if self.list_type == "bullet_list_open" else self.list_start or 0
        for index, item in enumerate(self.items):
            yield from render_item(item, "•" if start is None else f"{start + index}.", console, options)


def render_item(item: ListItem, mark: str, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
    indent = len(mark) + 2
    inner = options.update(width=max(1, options.max_width - indent))
    for index, line in enumerate(console.render_lines(item.elements, inner, style=item.style, pad=False)):
        yield Segment(f" {mark} " if index == 0 else " " * indent)
        yield from line
        yield Segment.line()


class TerminalMarkdown(Markdown):
    elements = {
        **Markdown.elements,
        "heading_open": LeftHeading,
        "fence": PlainCode,
        "code_block": PlainCode,
        "bullet_list_open": NumberedList,
        "ordered_list_open": NumberedList,
    }
    parser = make_parser()

    def __init__(self, block: MarkdownBlock) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = self.parser.parse(reveal_text(block.source))
        if block.number is not None and self.parsed and self.parsed[0].type == "ordered_list_open":
            self.parsed[0].attrs["start"] = block.number


class MarkdownAnswer:
    def __init__(self, width: Callable[[], int], styles: Styles) -> None:
        self._width = width
        self._styles = styles
        self._console = Console(file=io.StringIO(), theme=THEME, legacy_windows=False, _environ={})
        self._splitter = BlockSplitter()
        self._arrived: list[str] = []
        """Text that is not split yet: it is done once per frame."""
        self._last: MarkdownBlock | None = None
        """The last block that was printed."""
        self._language = ""
        self._code: list[str] = []
        """The last lines of the code that is open."""
        self._shown: tuple[MarkdownBlock, int, list[str]] | None = None
        """The open block as it was drawn last: block, width, lines."""

    def feed(self, text: str) -> None:
        self._arrived.append(text)

    def take(self) -> list[str]:
        text, self._arrived = "".join(self._arrived), []
        return self._render_all(self._splitter.feed(text))

    def open_lines(self) -> list[str]:
        block, width = self._splitter.open_block, self._width()
        if not block.source.strip():
            return []
        if self._shown is None or self._shown[:2] != (block, width):
            # Only the end is on the screen.
            end = msgspec.structs.replace(block, source=block.source[-MAX_LIVE_CHARS:])
            self._shown = block, width, self._render(end)
        return [*self._space(block), *self._shown[2]]

    def finish(self) -> list[str]:
        return [*self.take(), *self._render_all(self._splitter.finish())]

    def _render_all(self, blocks: list[MarkdownBlock]) -> list[str]:
        lines: list[str] = []
        for is_code, group in groupby(blocks, lambda block: block.kind == "code"):
            if is_code:
                found = list(group)
                lines, self._last = [*lines, *self._render_code(found)], found[-1]
                continue
            for block in group:
                if rendered := self._render(block):
                    lines += [*self._space(block), *rendered]
                    self._last = block
        return lines

    def _render_code(self, blocks: list[MarkdownBlock]) -> list[str]:
        """Lines of code with colours. The lines before them are read again, because a lexer keeps no state."""
        new = [clean_code(block) for block in blocks]
        self._code = [*self._code, *new][-max(len(new), CONTEXT_LINES) :]
        lexer = find_lexer(self._language) if self._styles.has_color else None
        painted = None if lexer is None else highlight("\n".join(self._code), lexer, self._styles)
        return [self._styles.code(line) for line in new] if painted is None else painted.split("\n")[-len(new) :]

    def _space(self, block: MarkdownBlock) -> list[str]:
        """An empty line between two blocks, but not inside of code or of a list without empty lines."""
        last = self._last
        if last is None or block.kind in ("code", "end"):
            return []
        is_tight = last.kind == block.kind == "item" and not last.source.endswith("\n\n")
        return [] if is_tight else [""]

    def _render(self, block: MarkdownBlock) -> list[str]:
        """The lines of a block; none if it is blank."""
        if block.kind in ("code", "end", "fence"):
            text = clean_code(block)
            if block.kind == "fence" and (found := LANGUAGE.match(block.source)) is not None:
                self._language, self._code = found[1], []
            return [self._styles.code(text) if block.kind == "code" else self._styles.dim(text)]
        options = self._console.options.update(width=max(MIN_COLUMNS, self._width()))
        lines = self._console.render_lines(TerminalMarkdown(block), options, pad=False)
        painted = ["".join(map(self._paint, trim(line))).rstrip() for line in lines]
        filled = [index for index, line in enumerate(painted) if line]
        return painted[filled[0] : filled[-1] + 1] if filled else []

    def _paint(self, segment: Segment) -> str:
        text, style = reveal_text(segment.text), segment.style
        if style is None or not self._styles.has_attributes:
            return text
        return (style if self._styles.has_color else style.without_color).render(
            text, color_system=ColorSystem.STANDARD
        )


def trim(line: list[Segment]) -> list[Segment]:
    """A line without the blanks at its end."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return line


def clean_code(block: MarkdownBlock) -> str:
    """A line of code without the indentation of its fence."""
    line = reveal_text(block.source).strip("\n")
    return line[min(block.indent, len(line) - len(line.lstrip(" "))) :]
