"""Formats Markdown for the terminal with `rich`, block by block (blocks.py). Needs the extra `tui`.

Links are shown with their addresses, because a hyperlink would hide where it leads. Code is printed as it is, with its
fence, so that it can be copied. What an entity such as `&#x202e;` stands for is revealed after formatting.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

import msgspec
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListElement, ListItem, Markdown
from rich.segment import Segment
from rich.theme import Theme

from parley.terminal.rendering.blocks import BlockSplitter, MarkdownBlock, make_parser
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
        for block in blocks:
            if rendered := self._render(block):
                lines += [*self._space(block), *rendered]
                self._last = block
        return lines

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
            text = remove_indent(reveal_text(block.source).strip("\n"), block.indent)
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


def remove_indent(line: str, indent: int) -> str:
    """A line of code without the indentation of its fence."""
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]
