"""Read: show a file as numbered lines, an image, the pages of a PDF, or the cells of a notebook."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools import read_tracker
from parley.tools.base import Context, ToolOutput
from parley.tools.files.encoding import UNKNOWN, detect, to_utf8
from parley.tools.files.lines import DEFAULT_LINES, LONGEST_LINE_CHARS, MOST_CHARS, Excerpt, excerpt
from parley.tools.paths import read_whole_file, resolve_path
from parley.workspace.base import FileSnapshot, Scope

TWICE_BASE64 = 450_000
"""The limit of base64 data, which a message carries twice: for the model and in the detail."""
SHORT_BYTES = 64 * 1024
MOST_PAGES = 20
PDF = b"%PDF-"


class ReadShown(Struct, frozen=True, kw_only=True):
    """The input as the model sees it."""

    file_path: Annotated[str, Meta(description="Absolute path of the file")]
    offset: Annotated[int | None, Meta(description="The first line to show, counted from 1")] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description=f"How many lines to read [{DEFAULT_LINES}]")
    ] = None
    pages: Annotated[str | None, Meta(description=f'Pages of a PDF, like "1-5"; at most {MOST_PAGES}')] = None


class ReadInput(ReadShown, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allow_large: bool | None = None
    """A higher limit for text: all lines, and more characters."""


class Read:
    name: ClassVar[str] = "Read"
    reads_only: ClassVar[bool] = True
    input: ClassVar[type[Struct]] = ReadInput
    shown: ClassVar[type[Struct]] = ReadShown
    description: ClassVar[str] = (
        "Shows a file. Text is shown as lines, each after its number and a tab; a long file in parts, chosen with "
        "`offset` and `limit`. Images (PNG, JPEG, GIF, WebP) are shown as images, a PDF as the text of its pages, a "
        "notebook as its cells with their outputs (there `offset` and `limit` count cells). Folders cannot be read."
    )

    async def run(self, call: ReadInput, context: Context, reach: Scope) -> ToolOutput:
        path = resolve_path(call.file_path, context)
        cached = context.files.read_cached(path, reach, SHORT_BYTES)
        if cached is not None and is_text(path, cached.data):
            # A thread would take longer than this.
            snapshot, (result, whole) = cached, text(path, cached.data, call)
        else:
            snapshot, result, whole = await run_in_thread(lambda: read_for_model(path, call, context, reach))
        read_tracker.mark_seen(context, snapshot, whole=whole)
        return result


def is_text(path: str, data: bytes) -> bool:
    """Whether a file is shown as text, which is quick. False for an empty notebook, too."""
    from parley.tools.files import images

    return not (data.startswith(PDF) or path.endswith(".ipynb") or images.media_type(data) is not None)


def read_for_model(path: str, call: ReadInput, context: Context, reach: Scope) -> tuple[FileSnapshot, ToolOutput, bool]:
    """The file, its result, and whether the result shows all of it."""
    snapshot = read_whole_file(path, context, reach)
    data = snapshot.data
    if data.startswith(PDF):
        return snapshot, pdf(path, data, call), False
    if path.endswith(".ipynb") and data.strip():
        return snapshot, *notebook(path, data, call)
    return snapshot, *(image(data) or text(path, data, call))


def image(data: bytes) -> tuple[ToolOutput, bool] | None:
    """The result for an image; None for other files."""
    from parley.tools.files import images

    kind = images.media_type(data)
    if kind is None:
        return None
    whole = images.read_size(data, kind)
    small = images.fit_image(whole)
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


def pdf(path: str, data: bytes, call: ReadInput) -> ToolOutput:
    from base64 import b64encode

    from parley.tools.files import pdf as document

    texts, count = document.page_texts(data, call.pages, MOST_PAGES)
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


def notebook(path: str, data: bytes, call: ReadInput) -> tuple[ToolOutput, bool]:
    from parley.tools.files import notebook_cells

    try:
        book = notebook_cells.load(data)
    except notebook_cells.NotANotebook as exc:
        return text(path, data, call, f"The file is not a valid notebook ({exc}); this is its text.")
    total = len(book["cells"])
    first = max(0, (call.offset or 1) - 1)
    view = notebook_cells.show_cells(book, first, call.limit or total)
    end = first + len(view.cells)
    blocks = view.blocks or [
        {"type": "text", "text": f"(The notebook has {total} cells; offset and limit select none of them.)"}
    ]
    if view.left_off:
        note = f"(Cells {first + 1} to {end} of {total} are shown. Continue with offset {end + 1}.)"
        blocks.append({"type": "text", "text": note})
    detail = {"type": "notebook", "file": {"filePath": path, "cells": view.cells}}
    return ToolOutput(content=blocks, detail=detail), len(view.cells) == total


def text(path: str, data: bytes, call: ReadInput, note: str = "") -> tuple[ToolOutput, bool]:
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
