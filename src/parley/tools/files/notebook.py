"""NotebookEdit: replace, insert or delete a cell of a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from parley._threads import run_in_thread
from parley.errors import ToolError
from parley.protocol.base import Json, Struct
from parley.tools import read_tracker
from parley.tools.base import Context, ToolOutput
from parley.tools.files import notebook_cells
from parley.tools.files.encoding import as_text, as_utf8
from parley.tools.paths import read_whole_file, resolve_path
from parley.tools.size_limit import LINE_BYTES, fit_detail
from parley.workspace.base import Scope

JUPYTERS_INDENT = " "


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


class NotebookEdit:
    name: ClassVar[str] = "NotebookEdit"
    reads_only: ClassVar[bool] = False
    input: ClassVar[type[Struct]] = NotebookEditInput
    description: ClassVar[str] = (
        "Changes one cell of a Jupyter notebook: replaces its source, inserts a new cell after it, or deletes it. "
        "Replacing the source of a code cell clears its outputs."
    )

    async def run(self, call: NotebookEditInput, context: Context, reach: Scope) -> ToolOutput:
        path = resolve_path(call.notebook_path, context)
        return await run_in_thread(lambda: edit(path, call, context, reach))


class Changed(Struct, frozen=True, kw_only=True):
    """The outcome for a cell."""

    said: str
    cell_id: str
    cell_type: str
    old_source: str | None = None


def edit(path: str, call: NotebookEditInput, context: Context, reach: Scope) -> ToolOutput:
    before = read_whole_file(path, context, reach)
    seen_before = read_tracker.check_read_state(context, before)
    try:
        book = notebook_cells.load(before.data)
    except notebook_cells.NotANotebook as exc:
        raise ToolError(f"{path} is not a valid notebook: {exc}") from None
    changed = EDITS[call.edit_mode](book, call, context.new_id)
    data = dump_notebook(book, before.data)
    after = context.files.write(path, data, reach, replacing=before)
    read_tracker.mark_seen(context, after, whole=seen_before.whole)
    detail: Json = {
        "new_source": call.new_source,
        "cell_type": changed.cell_type,
        "language": notebook_cells.language(book),
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


def replace(book: Json, call: NotebookEditInput, new_id: Callable[[], str]) -> Changed:
    index = find(book, call.cell_id)
    cell = book["cells"][index]
    old = notebook_cells.join_source(cell.get("source"))
    kind = call.cell_type or str(cell.get("cell_type") or "code")
    cell["cell_type"] = kind
    cell["source"] = format_source(call.new_source, as_list=isinstance(cell.get("source"), list))
    if kind == "code":
        # What the old source gave says nothing of the new one.
        cell |= {"outputs": [], "execution_count": None}
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    name = notebook_cells.cell_id(cell, index)
    said = f"Updated cell {name} with {call.new_source}"
    return Changed(said=said, cell_id=name, cell_type=kind, old_source=old)


def insert(book: Json, call: NotebookEditInput, new_id: Callable[[], str]) -> Changed:
    index = 0 if call.cell_id is None else find(book, call.cell_id) + 1
    kind = call.cell_type or "code"
    as_list = not any(isinstance(cell.get("source"), str) for cell in book["cells"])
    cell: Json = {"cell_type": kind, "metadata": {}, "source": format_source(call.new_source, as_list=as_list)}
    if kind == "code":
        cell |= {"outputs": [], "execution_count": None}
    if takes_ids(book):
        cell["id"] = new_id()[:8]
    book["cells"].insert(index, cell)
    name = notebook_cells.cell_id(cell, index)
    return Changed(said=f"Inserted cell {name} with {call.new_source}", cell_id=name, cell_type=kind)


def delete(book: Json, call: NotebookEditInput, new_id: Callable[[], str]) -> Changed:
    index = find(book, call.cell_id)
    name = notebook_cells.cell_id(book["cells"][index], index)
    cell = book["cells"].pop(index)
    old = notebook_cells.join_source(cell.get("source"))
    kind = str(cell.get("cell_type") or "code")
    return Changed(said=f"Deleted cell {name}", cell_id=name, cell_type=kind, old_source=old)


EDITS = {"replace": replace, "insert": insert, "delete": delete}


def find(book: Json, wanted: str | None) -> int:
    """The position of a cell. Raises ToolError."""
    names = [notebook_cells.cell_id(cell, index) for index, cell in enumerate(book["cells"])]
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


def dump_notebook(book: Any, before: bytes) -> bytes:
    """The notebook as Jupyter writes it, with the indentation and line endings of the file."""
    import json

    found = re.match(rb'[^"]*\{\r?\n([ \t]+)"', before)
    indent = found[1].decode() if found else JUPYTERS_INDENT
    text = json.dumps(book, indent=indent, ensure_ascii=False)
    if before.endswith(b"\n"):
        text += "\n"
    if b"\r\n" in before:
        text = text.replace("\n", "\r\n")
    return as_utf8(text)
