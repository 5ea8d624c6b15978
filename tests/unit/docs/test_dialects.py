"""Every row of scripts/reference/dialect-coverage.md names a test that exists.

A test is named as `tests/folder/test_file.py::test_name`, a conversation as `tests/transcripts/name.talk`.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.helpers import paths

ROOT = paths.ROOT
DOCUMENTS = ("SDK protocol notes", "Claude Agent SDK specification", "miriad-code", "Editor extension", "Broker")
NAMED = re.compile(r"`(tests/[\w./-]+\.(?:py|talk))(?:::(\w+))?`")
BAR = re.compile(r"(?<!\\)\|")


def rows(document: str) -> list[str]:
    """The rows of the table about a document, without its head."""
    text = (ROOT / "scripts/reference/dialect-coverage.md").read_text()
    (section,) = re.findall(rf"^## {document}$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return lines[2:]


@cache
def names_in(path: str) -> frozenset[str]:
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


def exists(path: str, test: str) -> bool:
    return test in names_in(path) if test else path.endswith(".talk") and (ROOT / path).is_file()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_row_about_a_document_says_something_and_names_tests_that_exist(document: str) -> None:
    assert rows(document)
    for row in rows(document):
        _, says, shown_by, _ = (cell.strip() for cell in BAR.split(row))
        named = NAMED.findall(shown_by)

        assert says, row
        assert named, f"no test is named: {row}"
        assert [name for name in named if not exists(*name)] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert exists("tests/unit/docs/test_dialects.py", "test_a_test_that_is_not_there_is_noticed")
    assert not exists("tests/unit/docs/test_dialects.py", "test_nothing")
    assert not exists("tests/test_nowhere.py", "test_nothing")
    assert not exists("tests/unit/docs/test_dialects.py", "")
    assert not exists("tests/transcripts/nowhere.talk", "")
