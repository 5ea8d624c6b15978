"""The content of a web page as text: its type, its encoding, its text.

    readable(page.body, page.content_type, page.url)

Imported when a page is read: `html.parser`, which html.py uses, takes time to load.
"""

from __future__ import annotations

import re

from parley.tools.web.html import html_to_text

CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]+)""", re.IGNORECASE)
XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w-]+)""", re.IGNORECASE)
MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
READABLE = re.compile(r"text/.*|application/(.*[.+-])?(json|xml|javascript|yaml|ndjson|graphql|toml)|.*\+(json|xml)")


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
