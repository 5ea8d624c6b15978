"""NotebookEdit, on real notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.tools.base import InvalidInput, ToolOutput
from parley.tools.files.notebook import NotebookEdit
from parley.tools.files.read import Read
from tests.helpers.tools import ToolHarness

CODE = {
    "cell_type": "code",
    "id": "c1",
    "metadata": {"tags": ["t"]},
    "source": ["x=1\n"],
    "outputs": [{"output_type": "stream", "text": "1"}],
    "execution_count": 3,
}
WORDS = {"cell_type": "markdown", "id": "c2", "metadata": {}, "source": "# é"}
BOOK = {
    "cells": [CODE, WORDS],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    harness = ToolHarness(tmp_path)
    put(harness, BOOK)
    return harness


def put(harness: ToolHarness, book: dict[str, Any], **how: Any) -> None:
    harness.put("n.ipynb", json.dumps(book, **how))


def change(harness: ToolHarness, **input: Any) -> ToolOutput:
    return harness.call(NotebookEdit(), notebook_path=harness.path("n.ipynb"), **input)


def cells(harness: ToolHarness) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((harness.folder / "n.ipynb").read_bytes())["cells"]
    return found


def test_a_cell_gets_a_new_source_and_loses_its_outputs(harness: ToolHarness) -> None:
    before = (harness.folder / "n.ipynb").read_text()
    result = change(harness, cell_id="c1", new_source="x=2\ny=3")
    new = {**CODE, "source": ["x=2\n", "y=3"], "outputs": [], "execution_count": None}
    assert cells(harness) == [new, WORDS]
    assert result == ToolOutput(
        content="Updated cell c1 with x=2\ny=3",
        detail={
            "new_source": "x=2\ny=3",
            "old_source": "x=1\n",
            "cell_type": "code",
            "language": "python",
            "edit_mode": "replace",
            "cell_id": "c1",
            "error": "",
            "notebook_path": harness.path("n.ipynb"),
            "original_file": before,
            "updated_file": (harness.folder / "n.ipynb").read_text(),
        },
    )


def test_a_source_stays_a_string_where_it_is_one(harness: ToolHarness) -> None:
    change(harness, cell_id="c2", new_source="# ü\nmore")
    assert cells(harness) == [CODE, {**WORDS, "source": "# ü\nmore"}]


def test_a_cell_may_change_its_type(harness: ToolHarness) -> None:
    change(harness, cell_id="c1", new_source="text", cell_type="markdown")
    assert cells(harness)[0] == {"cell_type": "markdown", "id": "c1", "metadata": {"tags": ["t"]}, "source": ["text"]}
    change(harness, cell_id="c1", new_source="y", cell_type="code")
    assert cells(harness)[0]["outputs"] == []


@pytest.mark.parametrize(("after", "place"), [(None, 0), ("c1", 1), ("c2", 2)])
def test_a_new_cell_comes_after_the_named_one_or_at_the_top(
    harness: ToolHarness, after: str | None, place: int
) -> None:
    result = change(harness, cell_id=after, new_source="new", edit_mode="insert", cell_type="markdown")
    found = cells(harness)
    new = found.pop(place)
    assert found == [CODE, WORDS]
    assert new == {"cell_type": "markdown", "metadata": {}, "source": "new", "id": result.detail["cell_id"]}
    assert result.content == f"Inserted cell {new['id']} with new"
    assert "old_source" not in result.detail


def test_a_new_cell_is_code_by_default_and_has_no_id_in_an_old_notebook(harness: ToolHarness) -> None:
    put(harness, {**BOOK, "cells": [], "nbformat_minor": 4})
    result = change(harness, new_source="x\ny", edit_mode="insert")
    assert cells(harness) == [
        {"cell_type": "code", "metadata": {}, "source": ["x\n", "y"], "outputs": [], "execution_count": None}
    ]
    assert result.detail["cell_id"] == "cell-0"


def test_a_cell_is_deleted(harness: ToolHarness) -> None:
    result = change(harness, cell_id="c1", new_source="", edit_mode="delete")
    assert cells(harness) == [WORDS]
    assert (result.content, result.detail["old_source"]) == ("Deleted cell c1", "x=1\n")


def test_cells_without_an_id_go_by_their_place_as_read_shows_them(harness: ToolHarness) -> None:
    bare = {key: value for key, value in WORDS.items() if key != "id"}
    put(harness, {**BOOK, "cells": [CODE, bare]})
    name = harness.call(Read(), file_path=harness.path("n.ipynb")).detail["file"]["cells"][1]["cell_id"]
    change(harness, cell_id=name, new_source="found")
    assert cells(harness)[1] == {**bare, "source": "found"}


@pytest.mark.parametrize(
    ("how", "ending"),
    [({"indent": 1}, "\n"), ({"indent": 4}, ""), ({"indent": "\t", "ensure_ascii": False}, "\n")],
    ids=["jupyter", "four", "tab"],
)
def test_indentation_and_final_newline_stay_as_they_are(harness: ToolHarness, how: dict[str, Any], ending: str) -> None:
    harness.put("n.ipynb", json.dumps(BOOK, **how) + ending)
    change(harness, cell_id="c2", new_source="# ö")
    expected = {**BOOK, "cells": [CODE, {**WORDS, "source": "# ö"}]}
    assert (harness.folder / "n.ipynb").read_text() == json.dumps(expected, **{**how, "ensure_ascii": False}) + ending


def test_line_endings_stay_as_they_are(harness: ToolHarness) -> None:
    harness.put("n.ipynb", json.dumps(BOOK, indent=1).replace("\n", "\r\n"))
    change(harness, cell_id="c2", new_source="a\nb")
    data = (harness.folder / "n.ipynb").read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") > 10
    assert cells(harness)[1]["source"] == "a\nb"


def test_numbers_that_json_does_not_know_survive(harness: ToolHarness) -> None:
    put(harness, {**BOOK, "metadata": {"x": float("nan"), "big": 2**80}})
    change(harness, cell_id="c2", new_source="new")
    assert '"x": NaN' in (harness.folder / "n.ipynb").read_text()
    assert f'"big": {2**80}' in (harness.folder / "n.ipynb").read_text()


@pytest.mark.parametrize("mode", ["replace", "insert", "delete"])
def test_an_unknown_cell_is_refused_with_the_ones_there_are(harness: ToolHarness, mode: str) -> None:
    words = harness.refusal(
        NotebookEdit(), notebook_path=harness.path("n.ipynb"), cell_id="zz", new_source="", edit_mode=mode
    )
    assert words == 'Cell with ID "zz" not found in notebook. The cells are c1, c2.'
    assert cells(harness) == [CODE, WORDS]


@pytest.mark.parametrize("mode", ["replace", "delete"])
def test_a_change_without_a_cell_is_refused(harness: ToolHarness, mode: str) -> None:
    words = harness.refusal(NotebookEdit(), notebook_path=harness.path("n.ipynb"), new_source="", edit_mode=mode)
    assert words.startswith("cell_id is missing")


def test_what_is_not_a_notebook_is_refused(harness: ToolHarness) -> None:
    harness.put("n.ipynb", "{")
    words = harness.refusal(NotebookEdit(), notebook_path=harness.path("n.ipynb"), cell_id="c1", new_source="")
    assert "not a valid notebook" in words


def test_an_unknown_mode_is_invalid(harness: ToolHarness) -> None:
    with pytest.raises(InvalidInput, match="edit_mode"):
        change(harness, cell_id="c1", new_source="", edit_mode="append")


def test_a_model_that_must_read_first_cannot_change_an_unread_notebook(tmp_path: Path) -> None:
    harness = ToolHarness(tmp_path, strict_reads=True)
    put(harness, BOOK)
    words = harness.refusal(NotebookEdit(), notebook_path=harness.path("n.ipynb"), cell_id="c1", new_source="")
    assert words.startswith("File has not been read yet.")
    harness.call(Read(), file_path=harness.path("n.ipynb"))
    assert change(harness, cell_id="c1", new_source="y").content == "Updated cell c1 with y"
