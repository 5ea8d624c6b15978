"""NotebookEdit: replace, insert or delete a cell of a notebook; and the cells of a notebook as Read shows them."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools.base import Context, Tool, ToolOutput
from parley.tools.files import read
from parley.tools.files.access import (
    LINE_BYTES,
    as_text,
    as_utf8,
    check_read_state,
    fit_detail,
    mark_seen,
    read_whole_file,
    resolve_path,
)
from parley.workspace.base import Scope

JUPYTERS_INDENT = " "
MOST_OUTPUT_CHARS = 10_000
"""The limit of one output."""
MOST_CELL_CHARS = 100_000
MOST_IMAGE_BASE64 = 300_000
"""The limit of all images together."""
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class NotebookEditInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    notebook_path: Annotated[str, Meta(description="Absolute path of the .ipynb file")]
    new_source: Annotated[str, Meta(description="The new source of the cell")]
    cell_id: Annotated[
        str | None,
        Meta(description="The cell, by the id that Read shows. A new cell comes after it, without an id at the top"),
    ] = None
    cell_type: Annotated[
        Literal["code", "markdown"] | None, Meta(description="Default: the type of the cell; `code` for a new one")
    ] = None
    edit_mode: Annotated[
        Literal["replace", "insert", "delete"], Meta(description="What to do with the cell [replace]")
    ] = "replace"


class NotebookEdit(Tool):
    name = "NotebookEdit"
    reads_only = False
    input = NotebookEditInput
    description = (
        "Changes one cell of a Jupyter notebook: replaces its source, inserts a new cell after it, or deletes it. "
        "Replacing the source of a code cell clears its outputs."
    )

    async def run(self, call: NotebookEditInput, context: Context, reach: Scope) -> ToolOutput:
        path = resolve_path(call.notebook_path, context)
        return await run_in_thread(lambda: edit_notebook(path, call, context, reach))


class Changed(Struct, frozen=True, kw_only=True):
    """The outcome for a cell."""

    said: str
    cell_id: str
    cell_type: str
    old_source: str | None = None


def edit_notebook(path: str, call: NotebookEditInput, context: Context, reach: Scope) -> ToolOutput:
    before = read_whole_file(path, context, reach)
    seen_before = check_read_state(context, before)
    try:
        book = load_notebook(before.data)
    except NotANotebook as exc:
        raise ToolError(f"{path} is not a valid notebook: {exc}") from None
    changed = EDIT_MODES[call.edit_mode](book, call, context.new_id)
    # The notebook as Jupyter writes it, with the indentation and line endings of the file.
    found = re.match(rb'[^"]*\{\r?\n([ \t]+)"', before.data)
    indent = found[1].decode() if found else JUPYTERS_INDENT
    text = json.dumps(book, indent=indent, ensure_ascii=False)
    if before.data.endswith(b"\n"):
        text += "\n"
    if b"\r\n" in before.data:
        text = text.replace("\n", "\r\n")
    data = as_utf8(text)
    after = context.files.write(path, data, reach, replacing=before)
    mark_seen(context, after, whole=seen_before.whole)
    detail: Json = {
        "new_source": call.new_source,
        "cell_type": changed.cell_type,
        "language": language(book),
        "edit_mode": call.edit_mode,
        "cell_id": changed.cell_id,
        "error": "",
        "notebook_path": path,
        # Longer ones would not fit on a line.
        "original_file": as_text(before.data) if len(before.data) <= LINE_BYTES else "",
        "updated_file": as_text(data) if len(data) <= LINE_BYTES else "",
    }
    if changed.old_source is not None:
        detail["old_source"] = changed.old_source
    note = " (note: the file had been modified on disk since you last read it)" if seen_before.changed else ""
    return ToolOutput(content=changed.said + note, detail=fit_detail(detail, {"original_file": "", "updated_file": ""}))


def replace_cell(book: Json, call: NotebookEditInput, new_id: Callable[[], str]) -> Changed:
    index = find_cell(book, call.cell_id)
    cell = book["cells"][index]
    old = join_source(cell.get("source"))
    kind = call.cell_type or str(cell.get("cell_type") or "code")
    cell["cell_type"] = kind
    cell["source"] = format_source(call.new_source, as_list=isinstance(cell.get("source"), list))
    if kind == "code":
        # What the old source gave says nothing of the new one.
        cell |= {"outputs": [], "execution_count": None}
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    name = cell_id(cell, index)
    said = f"Updated cell {name} with {call.new_source}"
    return Changed(said=said, cell_id=name, cell_type=kind, old_source=old)


def insert_cell(book: Json, call: NotebookEditInput, new_id: Callable[[], str]) -> Changed:
    index = 0 if call.cell_id is None else find_cell(book, call.cell_id) + 1
    kind = call.cell_type or "code"
    as_list = not any(isinstance(cell.get("source"), str) for cell in book["cells"])
    cell: Json = {"cell_type": kind, "metadata": {}, "source": format_source(call.new_source, as_list=as_list)}
    if kind == "code":
        cell |= {"outputs": [], "execution_count": None}
    if takes_ids(book):
        cell["id"] = new_id()[:8]
    book["cells"].insert(index, cell)
    name = cell_id(cell, index)
    return Changed(said=f"Inserted cell {name} with {call.new_source}", cell_id=name, cell_type=kind)


def delete_cell(book: Json, call: NotebookEditInput, new_id: Callable[[], str]) -> Changed:
    index = find_cell(book, call.cell_id)
    name = cell_id(book["cells"][index], index)
    cell = book["cells"].pop(index)
    old = join_source(cell.get("source"))
    kind = str(cell.get("cell_type") or "code")
    return Changed(said=f"Deleted cell {name}", cell_id=name, cell_type=kind, old_source=old)


EDIT_MODES = {"replace": replace_cell, "insert": insert_cell, "delete": delete_cell}


def find_cell(book: Json, wanted: str | None) -> int:
    """The position of a cell. Raises ToolError."""
    names = [cell_id(cell, index) for index, cell in enumerate(book["cells"])]
    if wanted is None:
        raise ToolError(f"cell_id is missing: give the id of a cell. The cells are {list_cells(names)}.")
    if wanted not in names:
        raise ToolError(f'Cell with ID "{wanted}" not found in notebook. The cells are {list_cells(names)}.')
    return names.index(wanted)


def list_cells(names: list[str]) -> str:
    some = ", ".join(names[:50]) or "no cells"
    return f"{some} and {len(names) - 50} more" if len(names) > 50 else some


def takes_ids(book: Json) -> bool:
    """Cells have ids since format 4.5."""
    level = (book.get("nbformat"), book.get("nbformat_minor"))
    return all(isinstance(number, int) for number in level) and level >= (4, 5)


def format_source(source: str, *, as_list: bool) -> str | list[str]:
    return source.splitlines(keepends=True) if as_list else source


class NotANotebook(Exception):
    """The file is not a notebook of format 4."""


class ShownCells(Struct, frozen=True, kw_only=True):
    """Formatted cells."""

    blocks: list[Json]
    cells: list[Json]
    left_off: int
    """How many cells did not fit."""


def load_notebook(data: bytes) -> Json:
    """Raises NotANotebook."""
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
        self._chars_left = MOST_CELL_CHARS
        self._images_left = MOST_IMAGE_BASE64

    def add(self, cell: Json, name: str, spoken: str) -> bool:
        """Add a cell if it fits; the first always does. Returns whether it was added."""
        source = join_source(cell.get("source"))
        if len(source) > MOST_CELL_CHARS:
            source = f"{source[:MOST_CELL_CHARS]}\n(cut: the source has {len(source)} characters)"
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
        for kind in ("image/png", "image/jpeg"):
            base64 = join_source(data.get(kind)).replace("\n", "")
            if not base64 or len(base64) > self._images_left:
                continue
            try:
                image = read.read_size(b64decode(base64, validate=True), kind)
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
