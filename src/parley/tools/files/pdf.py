"""The text of a PDF, page by page."""

from __future__ import annotations

import logging
import re

from parley.errors import ToolError

MOST_BYTES = 100_000_000


def page_texts(data: bytes, pages: str | None, most: int) -> tuple[list[tuple[int, str]], int]:
    """The number and text of each requested page, and the number of pages.

    Raises ToolError, also if these would be more than `most`.
    """
    if len(data) > MOST_BYTES:
        raise ToolError(f"The PDF is too large to read ({len(data)} bytes). Extract the pages you need in Bash.")
    # Its warnings about malformed files would go to stderr.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    from io import BytesIO

    import pypdf

    try:
        reader = pypdf.PdfReader(BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError("The PDF is encrypted with a password.")
        count = len(reader.pages)
        chosen = chosen_pages(pages, count, most)
        return [(number, reader.pages[number - 1].extract_text().strip()) for number in chosen], count
    except ToolError:
        raise
    except Exception as exc:
        # A file can be broken in more ways than the parser has errors for.
        raise ToolError(f"The PDF cannot be read: {type(exc).__name__}: {exc}") from None


def chosen_pages(pages: str | None, count: int, most: int) -> range:
    """The requested pages. Raises ToolError."""
    if pages is None or not pages.strip():
        if count > most:
            raise ToolError(
                f'The PDF has {count} pages. Ask for at most {most} of them with `pages`, for instance "1-{most}".'
            )
        return range(1, count + 1)
    parts = re.fullmatch(r"\s*(\d{1,9})\s*(?:(-)\s*(\d{1,9})?\s*)?", pages)
    if parts is None:
        raise ToolError(f'`pages` must be like "3", "1-5" or "10-", not {pages!r}.')
    first = int(parts[1])
    last = int(parts[3] or count) if parts[2] else first
    if not 1 <= first <= last or first > count:
        raise ToolError(f"There are no pages {pages!r}; the PDF has {count} pages.")
    last = min(last, count)
    if last - first >= most:
        raise ToolError(f"{last - first + 1} pages are too many for one call; ask for at most {most}.")
    return range(first, last + 1)
