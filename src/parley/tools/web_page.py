"""The content of a web page as text. HTML becomes plain Markdown.

    page_text(page.body, page.content_type, page.url)

    html_to_text("<h1>Hi</h1><p>See <a href='/a'>this</a>", "https://example.com")
        -> "# Hi\\n\\nSee this (https://example.com/a)"

Headings, lists, tables, code and links keep their form; scripts and styles are dropped. The time is linear in the size
of the page, whatever it contains, and the number of tags is limited.

Imported when a page is read: `html.parser` takes time to load.
"""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urljoin

CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]+)""", re.IGNORECASE)
XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w-]+)""", re.IGNORECASE)
MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
READABLE = re.compile(r"text/.*|application/(.*[.+-])?(json|xml|javascript|yaml|ndjson|graphql|toml)|.*\+(json|xml)")
MOST_CHARS = 5_000_000
PIECE_CHARS = 8_192
MOST_PENDING_CHARS = 65_536
"""A longer tag is treated as text."""
MOST_TAGS = 250_000
"""A tag takes some microseconds. What follows is left out."""
TOO_MANY_TAGS = "(The page has too many tags. The rest is left out.)"
NO_TAG = re.compile(r"<(?![A-Za-z/!?])")
"""A character that starts no tag. The parser would look at each of them on its own."""
LESS_THAN = "\0"
"""Stands for `<` in text while the parser reads. A page has no such character."""
LONGEST_END_TAG = 16
DEEPEST_LIST = 8
SPACES = re.compile(r"\s+")
DROPPED = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select"})
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "section", "summary",
}  # fmt: skip


def is_text(content_type: str, body: bytes) -> bool:
    """Whether a page is text, by its content type or, without one, by its content."""
    kind = media_type(content_type)
    return bool(READABLE.fullmatch(kind)) if kind else b"\0" not in body[:4096]


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def page_text(body: bytes, content_type: str, url: str) -> str:
    """The text of a page."""
    text = decode_body(body, content_type)
    kind = media_type(content_type)
    if "html" in kind or (not kind and text.lstrip()[:1] == "<"):
        return html_to_text(text, url)
    return text.strip()


def decode_body(body: bytes, content_type: str) -> str:
    """The encoding: from the byte order mark, the header or the page itself; else UTF-8."""
    told = CHARSET.search(content_type)
    inside = META.search(body[:4096]) or XML_ENCODING.match(body[:256])
    name = next((codec for mark, codec in MARKS if body.startswith(mark)), None)
    name = name or (told[1] if told else None) or (inside[1].decode(errors="replace") if inside else "utf-8")
    try:
        return body.decode(name, errors="replace")
    except (LookupError, UnicodeError):
        return body.decode(errors="replace")


def html_to_text(html: str, url: str) -> str:
    """The text of a page at this URL."""
    reader = HtmlReader(url)
    html = NO_TAG.sub(LESS_THAN, html[:MOST_CHARS].replace(LESS_THAN, ""))
    try:
        at = 0
        while at < len(html):
            # The parser looks at an unfinished tag again with every piece, and at all it has when it is closed.
            # Pieces that grow with the tag, and a limit to it, keep the work in proportion.
            size = max(PIECE_CHARS, len(reader.rawdata))
            reader.feed(html[at : at + size])
            at += size
            if len(reader.rawdata) > MOST_PENDING_CHARS:
                at = reader.give_up(html, at)
    except TooManyTags:
        return f"{reader.text()}\n\n{TOO_MANY_TAGS}".strip()
    return reader.text()


class TooManyTags(Exception):
    """The rest of a page is not read."""


class HtmlReader(HTMLParser):
    """Writes lines while the parser reads tags."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._lines: list[str] = []
        self._line: list[str] = []
        self._start = ""
        """The prefix of the next line: the hashes of a heading, the dash of a list."""
        self._dropping = 0
        self._lists: list[int | None] = []
        """The open lists: None for dashes, else the number of the last item."""
        self._link: tuple[str, int] | None = None
        """The open link, and where its text starts in the line."""
        self._verbatim = False
        self._in_cell = False
        self._in_title = False
        self._title = ""
        self._tags = 0

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """`<![` without a name is text to browsers, and an error to the parser."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            return self.parse_bogus_comment(i)

    def give_up(self, html: str, at: int) -> int:
        """Skip an unterminated tag or script; returns where to continue."""
        if self.cdata_elem is not None:
            self.rawdata = self.rawdata[-LONGEST_END_TAG:]
            return at
        self.rawdata = ""
        end = html.find(">", at)
        return len(html) if end < 0 else end + 1

    def text(self) -> str:
        """The whole text."""
        if self.cdata_elem is None and not self.rawdata.startswith("<"):
            self.handle_data(unescape(self.rawdata))
        self._end_pre() if self._verbatim else self._break()
        title = SPACES.sub(" ", self._title).strip()
        body = "\n".join(self._lines).strip("\n")
        return f"{title}\n\n{body}".strip() if title and f"# {title}" not in self._lines else body

    # What the parser calls.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._count_tag()
        if tag in DROPPED:
            self._dropping += 1
        elif not self._dropping:
            self._open(tag, {name: (value or "").replace(LESS_THAN, "<") for name, value in attrs})

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # `<svg/>` closes itself; `<div/>` does not, in HTML.
        if tag not in DROPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._count_tag()
        if tag in DROPPED:
            self._dropping = max(0, self._dropping - 1)
        elif not self._dropping:
            self._close(tag)

    def handle_comment(self, data: str) -> None:
        self._count_tag()

    def _count_tag(self) -> None:
        self._tags += 1
        if self._tags > MOST_TAGS:
            self.rawdata = ""
            raise TooManyTags

    def handle_data(self, data: str) -> None:
        data = data.replace(LESS_THAN, "<")
        if self._in_title:
            self._title += data
        elif self._verbatim:
            self._line.append(data)
        elif not self._dropping:
            self._add(SPACES.sub(" ", data))

    # What tags mean.

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        match tag:
            case "p":
                self._paragraph()
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._section()
                self._start = "#" * int(tag[1]) + " "
            case "ul" | "ol":
                self._break()
                if not self._lists:
                    self._blank()
                self._lists.append(0 if tag == "ol" else None)
            case "li":
                self._item()
            case "table" | "tr":
                self._row(is_table=tag == "table")
            case "td" | "th":
                if self._line:
                    self._line.append(" | ")
                self._in_cell = True
            case "pre":
                self._section()
                self._verbatim = True
            case "code" if not self._verbatim:
                self._line.append("`")
            case "img" if words := attributes.get("alt", "").strip():
                self._line.append(f"[image: {words}]")
            case "a":
                self._link = (attributes.get("href", ""), len(self._line))
            case "title":
                self._in_title = not self._title
            case _ if tag in BLOCKS:
                self._block()

    def _close(self, tag: str) -> None:
        match tag:
            case "p":
                self._paragraph()
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._section()
            case "ul" | "ol":
                self._break()
                del self._lists[-1:]
                if not self._lists:
                    self._blank()
            case "table" | "tr":
                self._row(is_table=tag == "table")
            case "pre":
                self._end_pre()
            case "code" if not self._verbatim:
                self._line.append("`")
            case "a":
                self._end_link()
            case "title":
                self._in_title = False
            case _ if tag in BLOCKS or tag == "li":
                self._block()

    def _block(self) -> None:
        if self._verbatim:
            if not "".join(self._line[-1:]).endswith("\n"):
                self._line.append("\n")
        elif self._in_cell:
            self._add(" ")
        else:
            self._break()

    def _paragraph(self) -> None:
        self._block()
        if not (self._verbatim or self._in_cell or self._lists):
            self._blank()

    def _section(self) -> None:
        self._break()
        self._blank()

    def _item(self) -> None:
        self._break()
        mark = "- "
        if self._lists and self._lists[-1] is not None:
            self._lists[-1] += 1
            mark = f"{self._lists[-1]}. "
        self._start = "  " * min(len(self._lists) - 1, DEEPEST_LIST) + mark

    def _row(self, *, is_table: bool) -> None:
        self._in_cell = False
        self._break()
        if is_table:
            self._blank()

    def _end_pre(self) -> None:
        if self._verbatim:
            self._verbatim = False
            code = [line.rstrip() for line in "".join(self._line).strip("\n").split("\n")]
            self._lines += ["```", *code, "```"]
            self._line = []
            self._blank()

    def _end_link(self) -> None:
        if self._link is None:
            return
        (target, start), self._link = self._link, None
        words = "".join(self._line[start:]).strip()
        try:
            address = urljoin(self._url, target)
        except ValueError:
            return
        leads_on = bool(target) and not target.startswith("#") and address.startswith(("http://", "https://"))
        if leads_on and words and words != address:
            self._line.append(f" ({address})")

    # Lines.

    def _add(self, words: str) -> None:
        """Append to the line, which does not start with a space."""
        if self._line or words != " ":
            self._line.append(words)

    def _break(self) -> None:
        """End the line if it is not empty."""
        if words := SPACES.sub(" ", "".join(self._line)).strip():
            self._lines.append(self._start + words)
            self._start = ""
        self._line = []
        self._link = (self._link[0], 0) if self._link else None

    def _blank(self) -> None:
        """Add a blank line unless there is one."""
        self._start = ""
        if self._lines and self._lines[-1]:
            self._lines.append("")
