"""The cells of a notebook: parse them, and format them for the model and the client."""

from __future__ import annotations

import re
from typing import Any

from parley.errors import ToolError
from parley.protocol.base import Json, Struct

MOST_OUTPUT_CHARS = 10_000
"""The limit of one output."""
MOST_CHARS = 100_000
MOST_IMAGE_BASE64 = 300_000
"""The limit of all images together."""
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class NotANotebook(Exception):
    """The file is not a notebook of format 4."""


class ShownCells(Struct, frozen=True, kw_only=True):
    """Formatted cells."""

    blocks: list[Json]
    cells: list[Json]
    left_off: int
    """How many cells did not fit."""


def load(data: bytes) -> Json:
    """Raises NotANotebook."""
    import json

    try:
        book = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise NotANotebook(str(exc)) from None
    cells = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotANotebook("it has no list of cells")
    return dict(book)


def cell_id(cell: Json, index: int) -> str:
    """The id of a cell; its position in older notebooks, which have no ids."""
    return str(cell.get("id") or f"cell-{index}")


def join_source(value: Any) -> str:
    """A text that may be written as a list of lines."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


def language(book: Json) -> str:
    about = book.get("metadata")
    about = about if isinstance(about, dict) else {}
    for part, name in (("language_info", "name"), ("kernelspec", "language")):
        found = about.get(part)
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name])
    return "python"


def show_cells(book: Json, first: int, count: int) -> ShownCells:
    """Some cells with their outputs, as many as fit."""
    view = NotebookView()
    spoken = language(book)
    chosen = list(enumerate(book["cells"]))[first : first + count]
    for at, (index, cell) in enumerate(chosen):
        if not view.add(cell, cell_id(cell, index), spoken):
            return ShownCells(blocks=view.blocks, cells=view.cells, left_off=len(chosen) - at)
    return ShownCells(blocks=view.blocks, cells=view.cells, left_off=0)


class NotebookView:
    """Collects cells until the limits are reached."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []
        self.cells: list[Json] = []
        self._chars_left = MOST_CHARS
        self._images_left = MOST_IMAGE_BASE64

    def add(self, cell: Json, name: str, spoken: str) -> bool:
        """Add a cell if it fits; the first always does. Returns whether it was added."""
        source = join_source(cell.get("source"))
        if len(source) > MOST_CHARS:
            source = f"{source[:MOST_CHARS]}\n(cut: the source has {len(source)} characters)"
        kind = str(cell.get("cell_type") or "code")
        outputs = [output for output in map(self._output, list_outputs(cell.get("outputs"))) if output]
        self._chars_left -= len(source) + sum(len(output.get("text", "")) for output in outputs)
        if self._chars_left < 0 and self.cells:
            return False
        about = "" if kind == "code" else f' type="{kind}"'
        if kind == "code" and spoken != "python":
            about = f' language="{spoken}"'
        self._say(f'<cell id="{name}"{about}>{source}</cell id="{name}">')
        shown: Json = {"cellType": kind, "source": source, "cell_id": name}
        if kind == "code":
            shown["language"] = spoken
        if isinstance(cell.get("execution_count"), int):
            shown["execution_count"] = cell["execution_count"]
        if outputs:
            shown["outputs"] = outputs
            self._show(outputs)
        self.cells.append(shown)
        return True

    def _show(self, outputs: list[Json]) -> None:
        for output in outputs:
            if output.get("text"):
                self._say(f"<output>{output['text']}</output>")
            if image := output.get("image"):
                source = {"type": "base64", "data": image["image_data"], "media_type": image["media_type"]}
                self.blocks.append({"type": "image", "source": source})

    def _say(self, text: str) -> None:
        """Texts between two images make one block."""
        if self.blocks and self.blocks[-1]["type"] == "text":
            self.blocks[-1]["text"] += f"\n{text}"
        else:
            self.blocks.append({"type": "text", "text": text})

    def _output(self, output: Any) -> Json | None:
        """An output for the client, truncated to what fits."""
        if not isinstance(output, dict):
            return None
        data = output.get("data")
        data = data if isinstance(data, dict) else {}
        text = output_text(output, data)
        shown: Json = {"output_type": str(output.get("output_type"))}
        if image := self._image(data):
            shown["image"] = image
        elif any(key in data for key in ("image/png", "image/jpeg")):
            text += "\n(an image, too large to show)"
        if len(text) > MOST_OUTPUT_CHARS:
            text = f"{text[:MOST_OUTPUT_CHARS]}\n(cut: the output has {len(text)} characters)"
        return {**shown, "text": text} if text else shown

    def _image(self, data: Json) -> Json | None:
        from base64 import b64decode

        from parley.tools.files import images

        for kind in ("image/png", "image/jpeg"):
            base64 = join_source(data.get(kind)).replace("\n", "")
            if not base64 or len(base64) > self._images_left:
                continue
            try:
                image = images.read_size(b64decode(base64, validate=True), kind)
            except (ValueError, ToolError):
                continue
            if image.fits:
                self._images_left -= len(base64)
                return {"image_data": base64, "media_type": kind}
        return None


def output_text(output: Json, data: Json) -> str:
    if output.get("output_type") == "error":
        trace = "\n".join(map(str, list_outputs(output.get("traceback"))))
        text = trace or f"{output.get('ename')}: {output.get('evalue')}"
    else:
        text = join_source(output.get("text")) or join_source(data.get("text/plain"))
    return COLOURS.sub("", text)


def list_outputs(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
