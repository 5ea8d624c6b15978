"""Find the text that an edit replaces, and adapt the new text.

The model does not see everything: CR LF looks like LF to it, and it tends to type straight quotes where the file has
curly ones. So a line feed matches either line ending, and if nothing matches exactly, any quote matches its kind. The
new text gets the line endings and quotes of the file.

    for needle in needles(body, old, new):
        for change in needle.changes(body): ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parley.protocol.base import Struct
from parley.tools.files.diff import TextChange, alike
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
    """None to search for the old text, and insert the new one, unchanged."""
    any_quote: bool = False

    def changes(self, body: bytes, start: int = 0) -> Iterator[TextChange]:
        """The changes that replace every match from a position on."""
        if self.pattern is None:
            old, new = as_utf8(self.old), as_utf8(self.new)
            while (start := body.find(old, start)) >= 0:
                yield TextChange(start, start + len(old), new)
                start += len(old)
            return
        for match in self.pattern.finditer(body, start):
            found = match.group().decode(UTF8)
            yield TextChange(*match.span(), as_utf8(self._respelled(found, line_ending(match))))

    def _respelled(self, found: str, newline: str) -> str:
        """The new text in the spelling of the file. Where it repeats the old text, the file's text stays."""
        old, new = self.old, self.new
        units = re.findall(r"\r\n|.", found, re.DOTALL)
        head = alike(old, new)
        tail = alike(old, new, from_end=True, limit=min(len(old), len(new)) - head)
        before, middle, after = "".join(units[:head]), new[head : len(new) - tail], "".join(units[len(units) - tail :])
        if self.any_quote:
            middle = match_quotes(middle, found, before[-1:])
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
    """A pattern in which every quote matches all of its kind."""
    parts = (kind(part) if QUOTE.fullmatch(part) else part for part in QUOTE.split(line))
    return b"".join(
        b"(?:" + b"|".join(as_utf8(quote) for quote in part) + b")" if part in (SINGLE, DOUBLE) else
        re.escape(as_utf8(part)) for part in parts
    )  # fmt: skip


def kind(quote: str) -> str:
    return SINGLE if quote in SINGLE else DOUBLE


def line_ending(match: re.Match[bytes]) -> str:
    """The line ending in the match, or after it, or before it."""
    body = match.string
    at = body.find(b"\n", match.start())
    if at < 0:
        at = body.rfind(b"\n", 0, match.start())
    return "\r\n" if at > 0 and body[at - 1] == 0x0D else "\n"


def match_quotes(text: str, found: str, before: str) -> str:
    """The text with the quotes that the file has at this position."""
    for straight, of_its_kind in (("'", SINGLE), ('"', DOUBLE)):
        own = {quote for quote in found if quote in of_its_kind}
        if own == {straight}:
            text = "".join(straight if letter in of_its_kind else letter for letter in text)
        elif own:
            text = curl_quotes(text, straight, before)
    return text


def curl_quotes(text: str, straight: str, before: str) -> str:
    """The text with straight quotes made curly: opening at the start and after white space, else closing."""
    opening, closing = CURLY[straight]
    behind = before + text
    shift = len(before)
    return "".join(
        letter
        if letter != straight
        else (opening if at + shift == 0 or behind[at + shift - 1] in OPENS_AFTER else closing)
        for at, letter in enumerate(text)
    )
