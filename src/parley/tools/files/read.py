"""Read: show a file as numbered lines, an image, the pages of a PDF, or the cells of a notebook.

The type and size of an image are read from the header. A model API refuses images that are too large, and a
conversation with such an image in its history cannot continue. Large images are scaled down if Pillow is installed, and
refused otherwise.
"""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import HIDDEN, Context, Tool, ToolOutput
from parley.tools.files.access import UNKNOWN, as_text, detect, mark_seen, read_whole_file, resolve_path, to_utf8
from parley.version import how_to_install
from parley.workspace.base import FileSnapshot, Scope

MOST_BASE64 = 700_000
"""The limit of an image block; a larger one does not fit on a line."""
MOST_PIXELS_A_SIDE = 8_000
SIDES_TO_TRY = (2_000, 1_500, 1_000, 700, 400)
START_OF_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
WITHOUT_LENGTH = {0x01, *range(0xD0, 0xDA)}
MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Picture(Struct, frozen=True, kw_only=True):
    data: bytes
    media_type: str
    width: int
    height: int

    @property
    def base64(self) -> str:
        return b64encode(self.data).decode()

    @property
    def fits(self) -> bool:
        return len(self.data) * 4 / 3 <= MOST_BASE64 and max(self.width, self.height) <= MOST_PIXELS_A_SIDE

    @property
    def block(self) -> Json:
        return {"type": "image", "source": {"type": "base64", "data": self.base64, "media_type": self.media_type}}


def media_type(data: bytes) -> str | None:
    """The media type by the first bytes; None if models do not accept it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in MAGIC if data.startswith(magic)), None)


def read_size(data: bytes, kind: str) -> Picture:
    """Raises ToolError if the header is broken."""
    width, height = SIZES[kind](data)
    if not width or not height:
        raise ToolError(f"The file starts like {kind} but its header is damaged; it is {len(data)} bytes long.")
    return Picture(data=data, media_type=kind, width=width, height=height)


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Walks the segments to the one that starts the frame."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in START_OF_FRAME:
            return number(data[at + 7 : at + 9], "big"), number(data[at + 5 : at + 7], "big")
        if marker == 0xFF:
            at += 1
        else:
            at += 2 if marker in WITHOUT_LENGTH else 2 + max(2, number(data[at + 2 : at + 4], "big"))
    return 0, 0


def webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X" if len(data) >= 30:
            return 1 + number(data[24:27], "little"), 1 + number(data[27:30], "little")
        case b"VP8L" if len(data) >= 25:
            bits = number(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return number(data[26:28], "little") & 0x3FFF, number(data[28:30], "little") & 0x3FFF
    return 0, 0


SIZES: dict[str, Callable[[bytes], tuple[int, int]]] = {
    "image/png": lambda data: (number(data[16:20], "big"), number(data[20:24], "big")),
    "image/gif": lambda data: (number(data[6:8], "little"), number(data[8:10], "little")),
    "image/jpeg": jpeg_size,
    "image/webp": webp_size,
}


def number(data: bytes, order: Any) -> int:
    return int.from_bytes(data, order)


def fit_image(picture: Picture) -> Picture:
    """The image, scaled down if models would refuse it. Raises ToolError."""
    if picture.fits:
        return picture
    what = f"The image is too large ({picture.width}x{picture.height}, {len(picture.data)} bytes)"
    try:
        pillow = import_module("PIL.Image")
    except ImportError:
        raise ToolError(f"{what}. Make a smaller copy and read that, for instance with ImageMagick in Bash.") from None
    for side in SIDES_TO_TRY:
        out = BytesIO()
        try:
            with pillow.open(BytesIO(picture.data)) as image:
                see_through = "A" in image.getbands() or "transparency" in image.info
                image.thumbnail((side, side))
                kind = "png" if see_through else "jpeg"
                image.convert("RGBA" if see_through else "RGB").save(out, kind)
                width, height = image.size
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as exc:
            raise ToolError(f"The image is too large to show and cannot be scaled down: {exc}") from None
        smaller = Picture(data=out.getvalue(), media_type=f"image/{kind}", width=width, height=height)
        if smaller.fits:
            return smaller
    raise ToolError(f"{what}, and could not be made small enough.")


TWICE_BASE64 = 450_000
"""The limit of base64 data, which a message carries twice: for the model and in the detail."""
SHORT_BYTES = 64 * 1024
MOST_PAGES = 20
PDF = b"%PDF-"
DEFAULT_LINES = 2_000
LONGEST_LINE_CHARS = 2_000
MOST_CHARS = 100_000
"""The limit of an excerpt: about 25,000 tokens."""
MOST_LARGE_CHARS = 400_000
"""The limit with `allow_large`: about 100,000 tokens, and what fits on a line of the protocol twice."""
MOST_BYTES_A_CHAR = 4
MOST_PDF_BYTES = 100_000_000
LEAST_REFERRED_CHARS = 500
"""A shorter text takes hardly more room than a reference to it."""
UNCHANGED = "The file has not changed since you read it with the same arguments: see the result of that earlier call."


class ReadInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file_path: Annotated[str, Meta(description="Absolute path of the file")]
    offset: Annotated[int | None, Meta(description="The first line to show, counted from 1")] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description=f"How many lines to read [{DEFAULT_LINES}]")
    ] = None
    pages: Annotated[str | None, Meta(description=f'Pages of a PDF, like "1-5"; at most {MOST_PAGES}')] = None
    allow_large: Annotated[bool | None, HIDDEN] = None
    """A higher limit for text: all lines, and more characters."""


class Read(Tool):
    name = "Read"
    reads_only = True
    input = ReadInput
    description = (
        "Shows a file. Text is shown as lines, each after its number and a tab; a long file in parts, chosen with "
        "`offset` and `limit`. Images (PNG, JPEG, GIF, WebP) are shown as images, a PDF as the text of its pages, a "
        "notebook as its cells with their outputs (there `offset` and `limit` count cells). Folders cannot be read."
    )

    async def run(self, call: ReadInput, context: Context, reach: Scope) -> ToolOutput:
        path = resolve_path(call.file_path, context)
        cached = context.files.read_cached(path, reach, SHORT_BYTES)
        if cached is not None and is_text(path, cached.data):
            # A thread would take longer than this.
            snapshot, (result, whole) = cached, show_text(path, cached.data, call)
        else:
            snapshot, result, whole = await run_in_thread(lambda: read_for_model(path, call, context, reach))
        mark_seen(context, snapshot, whole=whole)
        return refer_to_earlier(result, call, snapshot, context, reach)


def refer_to_earlier(
    result: ToolOutput, call: ReadInput, snapshot: FileSnapshot, context: Context, reach: Scope
) -> ToolOutput:
    """A reference instead of a text that the model can see already: nothing has changed since an earlier call."""
    if not isinstance(result.content, str) or len(result.content) < LEAST_REFERRED_CHARS:
        return result
    shown: dict[ReadInput, tuple[int, str]] = context.state.notes.setdefault(Read.name, {})
    wanted, content = msgspec.structs.replace(call, file_path=snapshot.path), hash(snapshot.data)
    before, earlier = shown.get(wanted, (None, ""))
    if before == content and context.session.has_result(earlier, result.content):
        return ToolOutput(content=UNCHANGED, detail={"type": "file_unchanged", "file": {"filePath": snapshot.path}})
    shown[wanted] = (content, reach.call)
    return result


def is_text(path: str, data: bytes) -> bool:
    """Whether a file is shown as text, which is quick. False for an empty notebook, too."""
    return not (data.startswith(PDF) or path.endswith(".ipynb") or media_type(data) is not None)


def read_for_model(path: str, call: ReadInput, context: Context, reach: Scope) -> tuple[FileSnapshot, ToolOutput, bool]:
    """The file, its result, and whether the result shows all of it."""
    snapshot = read_whole_file(path, context, reach)
    data = snapshot.data
    if data.startswith(PDF):
        return snapshot, show_pdf(path, data, call), False
    if path.endswith(".ipynb") and data.strip():
        return snapshot, *show_notebook(path, data, call)
    return snapshot, *(show_image(data) or show_text(path, data, call))


def show_image(data: bytes) -> tuple[ToolOutput, bool] | None:
    """The result for an image; None for other files."""
    kind = media_type(data)
    if kind is None:
        return None
    whole = read_size(data, kind)
    small = fit_image(whole)
    blocks = [small.block]
    if small is not whole:
        note = f"(scaled down from {whole.width}x{whole.height} to {small.width}x{small.height})"
        blocks.append({"type": "text", "text": note})
    base64 = small.base64
    file = {
        # Twice does not fit on the line; the block beside has it.
        "base64": base64 if len(base64) <= TWICE_BASE64 else "",
        "type": small.media_type,
        "originalSize": len(data),
        "dimensions": {
            "originalWidth": whole.width,
            "originalHeight": whole.height,
            "displayWidth": small.width,
            "displayHeight": small.height,
        },
    }
    return ToolOutput(content=blocks, detail={"type": "image", "file": file}), True


def show_pdf(path: str, data: bytes, call: ReadInput) -> ToolOutput:
    texts, count = page_texts(data, call.pages, MOST_PAGES)
    parts = [f"Page {number} of {count}:\n{text or '(no text; it may be a scan)'}" for number, text in texts]
    content = "\n\n".join(parts)
    if len(content) > MOST_CHARS:
        content = f"{content[:MOST_CHARS]}\n\n(Cut here; ask for fewer pages at a time.)"
    # The host may show the file itself, as far as it fits on the line.
    base64 = b64encode(data).decode() if len(data) * 4 / 3 <= TWICE_BASE64 else ""
    return ToolOutput(
        content=content or "(The PDF has no pages.)",
        detail={"type": "pdf", "file": {"filePath": path, "base64": base64, "originalSize": len(data)}},
    )


def show_notebook(path: str, data: bytes, call: ReadInput) -> tuple[ToolOutput, bool]:
    from parley.tools.files.notebook import NotANotebook, load_notebook, show_cells

    try:
        book = load_notebook(data)
    except NotANotebook as exc:
        return show_text(path, data, call, f"The file is not a valid notebook ({exc}); this is its text.")
    total = len(book["cells"])
    first = max(0, (call.offset or 1) - 1)
    view = show_cells(book, first, call.limit or total)
    end = first + len(view.cells)
    blocks = view.blocks or [
        {"type": "text", "text": f"(The notebook has {total} cells; offset and limit select none of them.)"}
    ]
    if view.left_off:
        note = f"(Cells {first + 1} to {end} of {total} are shown. Continue with offset {end + 1}.)"
        blocks.append({"type": "text", "text": note})
    detail = {"type": "notebook", "file": {"filePath": path, "cells": view.cells}}
    return ToolOutput(content=blocks, detail=detail), len(view.cells) == total


def show_text(path: str, data: bytes, call: ReadInput, note: str = "") -> tuple[ToolOutput, bool]:
    encoding = detect(data)
    if encoding is None:
        raise ToolError(
            f"{path} is a binary file ({len(data)} bytes) of a kind that Read does not show. "
            "Use a program that knows its format, for instance `file`, `strings` or `xxd` in Bash."
        )
    body = to_utf8(data, encoding, errors="replace")
    part = excerpt(body, max(1, call.offset or 1), call.limit, allow_large=call.allow_large is True)
    notes = [note, *explain_cut(part, call)]
    if encoding == UNKNOWN:
        notes.append("The file is neither UTF-8 nor UTF-16; � stands for bytes that could not be read.")
    file: Json = {
        "filePath": path,
        "content": "\n".join(part.lines),
        "numLines": len(part.lines),
        "startLine": part.first,
        "totalLines": part.total,
    }
    if part.out_of_room:
        file["truncatedByTokenCap"] = True
    numbered = "\n".join(map("%d\t%s".__mod__, enumerate(part.lines, part.first)))  # no bytecode per line
    said = "\n".join(f"({note})" for note in notes if note)
    content = "\n\n".join(words for words in (numbered, said) if words)
    return ToolOutput(content=content, detail={"type": "text", "file": file}), part.whole and encoding != UNKNOWN


def explain_cut(part: Excerpt, call: ReadInput) -> list[str]:
    """A note about what is not shown."""
    if part.total == 0:
        return ["The file is empty."]
    if not part.lines:
        return [f"The file has only {part.total} lines; offset {part.first} is beyond them."]
    found = []
    last = part.first + len(part.lines) - 1
    # A limit that the model set itself needs no word.
    if last < part.total and (part.out_of_room or call.limit is None):
        found.append(f"Lines {part.first} to {last} of {part.total} are shown. Continue with offset {last + 1}.")
    if part.some_cut:
        found.append(f"Lines are cut after {LONGEST_LINE_CHARS} characters; a command in Bash shows them whole.")
    return found


class Excerpt(Struct, frozen=True, kw_only=True):
    lines: list[str]
    first: int
    total: int
    """The lines of the whole text. After a final line feed there is one more, empty line. 0 for an empty text."""
    some_cut: bool
    """A line was too long to be shown whole."""
    out_of_room: bool
    """Lines were omitted although `limit` includes them."""

    @property
    def whole(self) -> bool:
        return self.first == 1 and len(self.lines) == self.total and not self.some_cut


def excerpt(body: bytes, first: int, limit: int | None, *, allow_large: bool = False) -> Excerpt:
    """The lines from `first` on, as many as fit."""
    total = body.count(b"\n") + 1 if body else 0
    most = limit or (total if allow_large else DEFAULT_LINES)
    last = min(total, first + most - 1)
    lines: list[str] = []
    some_cut, room = False, MOST_LARGE_CHARS if allow_large else MOST_CHARS
    position = line_position(body, first) if first <= total else 0
    if first <= last == total and (short := short_lines(body, position, room)) is not None:
        return Excerpt(lines=short, first=first, total=total, some_cut=False, out_of_room=False)
    for _ in range(first, last + 1):
        end = body.find(b"\n", position)
        line, was_cut = number_lines(body, position, len(body) if end < 0 else end)
        room -= len(line) + 1
        if room < 0:
            break
        some_cut |= was_cut
        lines.append(line)
        position = end + 1
    return Excerpt(lines=lines, first=first, total=total, some_cut=some_cut, out_of_room=room < 0)


def short_lines(body: bytes, start: int, room: int) -> list[str] | None:
    """The lines from a position to the end, decoded at once; None if one may be too long, or all of them together."""
    if len(body) - start >= room:
        return None
    rest = body[start:] if start else body
    lines = (as_text(rest) if start == 0 else rest.decode(errors="replace")).split("\n")
    if max(map(len, lines)) > LONGEST_LINE_CHARS:
        return None
    return [line.removesuffix("\r") for line in lines] if b"\r" in rest else lines


def line_position(body: bytes, number: int) -> int:
    """The position of an existing line."""
    position = 0
    for _ in range(number - 1):
        position = body.find(b"\n", position) + 1
    return position


def number_lines(body: bytes, start: int, end: int) -> tuple[str, bool]:
    """A line without its ending, truncated if it is too long, and whether it was."""
    if end > start and body[end - 1] == 0x0D:
        end -= 1
    some = body[start : min(end, start + MOST_BYTES_A_CHAR * (LONGEST_LINE_CHARS + 1))]
    line = as_text(some) if start == 0 else some.decode(errors="replace")
    if len(line) <= LONGEST_LINE_CHARS:
        return line, False
    return f"{line[:LONGEST_LINE_CHARS]}... (cut: the line has {end - start} bytes)", True


def page_texts(data: bytes, pages: str | None, most: int) -> tuple[list[tuple[int, str]], int]:
    """The number and text of each requested page, and the number of pages.

    Raises ToolError, also if these would be more than `most`.
    """
    if len(data) > MOST_PDF_BYTES:
        raise ToolError(f"The PDF is too large to read ({len(data)} bytes). Extract the pages you need in Bash.")
    # Its warnings about malformed files would go to stderr.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        import pypdf
    except ModuleNotFoundError:
        raise ToolError(f"Reading PDF files needs the package pypdf: {how_to_install('pdf')}") from None
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
