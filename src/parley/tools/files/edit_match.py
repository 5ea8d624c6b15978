"""Finding the text an edit replaces, and saying what takes its place.

The model does not see everything: a file's CR LF looks like LF to it, and it tends to
type straight quotes where the file has curly ones. So a line feed matches either line
ending, and where nothing matches exactly, any quote matches its kind. What goes in has
the file's own spelling: its line endings, and its quotes.

    for needle in needles(body, old, new):
        for change in needle.changes(body): ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parley.protocol.base import Struct
from parley.tools.files.diff import Change, alike
from parley.tools.files.encoding import UTF8, as_utf8

SINGLE = "'‘’‛"
DOUBLE = '"“”‟'
CURLY = {"'": ("‘", "’"), '"': ("“", "”")}
"""What opens and what closes."""
OPENS_AFTER = " \t\r\n([{<—–-=:/" + "".join(opening for opening, _ in CURLY.values())
QUOTE = re.compile(f"([{SINGLE}{DOUBLE}])")


class Needle(Struct, frozen=True, kw_only=True):
    """One way to look for the old text."""

    old: str
    new: str
    pattern: re.Pattern[bytes] | None = None
    """None: the old text is looked for as it is, and the new one goes in as it is."""
    any_quote: bool = False

    def changes(self, body: bytes, start: int = 0) -> Iterator[Change]:
        """What replacing every match from a place on changes."""
        if self.pattern is None:
            old, new = as_utf8(self.old), as_utf8(self.new)
            while (start := body.find(old, start)) >= 0:
                yield Change(start, start + len(old), new)
                start += len(old)
            return
        for match in self.pattern.finditer(body, start):
            found = match.group().decode(UTF8)
            yield Change(*match.span(), as_utf8(self._respelled(found, line_ending(match))))

    def _respelled(self, found: str, newline: str) -> str:
        """The new text in the file's spelling. Where it only repeats the old text, the file's own text stays."""
        old, new = self.old, self.new
        units = re.findall(r"\r\n|.", found, re.DOTALL)
        head = alike(old, new)
        tail = alike(old, new, from_end=True, limit=min(len(old), len(new)) - head)
        before, middle, after = "".join(units[:head]), new[head : len(new) - tail], "".join(units[len(units) - tail :])
        if self.any_quote:
            middle = requoted(middle, found, before[-1:])
        return before + middle.replace("\n", newline) + after


def needles(body: bytes, old: str, new: str) -> Iterator[Needle]:
    """The ways to look for the old text, the most exact first."""
    hidden = b"\r\n" in body
    if hidden or "\r\n" in old:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    yield Needle(old=old, new=new, pattern=pattern(old) if hidden else None)
    if QUOTE.search(old):
        yield Needle(old=old, new=new, pattern=pattern(old, any_quote=True), any_quote=True)


def pattern(old: str, *, any_quote: bool = False) -> re.Pattern[bytes]:
    spelled = (quotes(line) if any_quote else re.escape(as_utf8(line)) for line in old.split("\n"))
    return re.compile(rb"\r?\n".join(spelled))


def quotes(line: str) -> bytes:
    """A line in which every quote stands for all of its kind."""
    parts = (kind(part) if QUOTE.fullmatch(part) else part for part in QUOTE.split(line))
    return b"".join(
        b"(?:" + b"|".join(as_utf8(quote) for quote in part) + b")" if part in (SINGLE, DOUBLE) else
        re.escape(as_utf8(part)) for part in parts
    )  # fmt: skip


def kind(quote: str) -> str:
    return SINGLE if quote in SINGLE else DOUBLE


def line_ending(match: re.Match[bytes]) -> str:
    """The one in the match, or behind it, or before it."""
    body = match.string
    at = body.find(b"\n", match.start())
    if at < 0:
        at = body.rfind(b"\n", 0, match.start())
    return "\r\n" if at > 0 and body[at - 1] == 0x0D else "\n"


def requoted(text: str, found: str, before: str) -> str:
    """The text with quotes as the file has them in the place it goes to."""
    for straight, of_its_kind in (("'", SINGLE), ('"', DOUBLE)):
        own = {quote for quote in found if quote in of_its_kind}
        if own == {straight}:
            text = "".join(straight if letter in of_its_kind else letter for letter in text)
        elif own:
            text = curled(text, straight, before)
    return text


def curled(text: str, straight: str, before: str) -> str:
    """The text with straight quotes made curly: opening at the start and behind white space, else closing."""
    opening, closing = CURLY[straight]
    behind = before + text
    shift = len(before)
    return "".join(
        letter
        if letter != straight
        else (opening if at + shift == 0 or behind[at + shift - 1] in OPENS_AFTER else closing)
        for at, letter in enumerate(text)
    )
