"""No module compares the name of a tool, model backend or dialect with a string: what is true of one is in its row."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from parley.compose.registry import DIALECTS
from parley.models.catalog import BACKENDS
from parley.tools.catalog import LISTED_NAMES, TOOLS
from tests.helpers.paths import SOURCE

NAMES = {*TOOLS, *LISTED_NAMES, *BACKENDS, *DIALECTS}
OTHER_MEANINGS = {
    "stream-json": "also the name of an input and output format",
    "replay": "also a subcommand of `parley permissions`",
    "offline": "also a flag",
}
CLIENT_SIDE = {
    ("parley/sdk/runtime/request_handlers.py", name): "the SDK has one callback for each of these requests"
    for name in ("AskUserQuestion", "ExitPlanMode")
}
OWN_FILES = {
    ("parley/protocol/dialects/jsonrpc.py", "jsonrpc"): "the field of that name",
    ("parley/protocol/schema.py", "jsonrpc"): "the field of that name",
    ("parley/inspector/conversation.py", "jsonrpc"): "the field of that name, and the kind of line that has it",
    ("parley/cli/commands/kit/recordings.py", "jsonrpc"): "the field of that name",
}

SUITE = "parley/conformance/"
"""Judges engines from outside, where a tool is its name on the wire."""


def compared_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every name that is an operand of a comparison, an element of one, or a case."""
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        for operand in operands:
            elements = operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            for element in elements:
                if isinstance(element, ast.Constant) and element.value in NAMES - OTHER_MEANINGS.keys():
                    yield node.value.lineno if isinstance(node, ast.MatchValue) else operand.lineno, str(element.value)


def test_no_module_compares_a_tool_backend_or_dialect_by_name() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith(SUITE)
        for line, name in compared_names(ast.parse(path.read_text(encoding="utf-8")))
        if (path.relative_to(SOURCE).as_posix(), name) not in CLIENT_SIDE | OWN_FILES
    ]

    assert found == []


@pytest.mark.parametrize(
    "source",
    ["x == 'Bash'", "x in ('Read', 'y')", "'anthropic' != x", "match x:\n case 'miriad': pass"],
)
def test_a_comparison_would_be_found(source: str) -> None:
    assert list(compared_names(ast.parse(source)))
