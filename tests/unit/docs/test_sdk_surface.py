"""scripts/reference/sdk-surface.md is true: the names can be had, the tests exist, and no official name is left out."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator

import pytest

import parley
from parley import Client, Options
from tests.helpers import paths

TESTS = paths.TESTS
TEXT = (TESTS.parent / "scripts" / "reference" / "sdk-surface.md").read_text(encoding="utf-8")
MODULES = ("parley", "parley.types", "parley._errors")
NAME = re.compile(r"`(\.?[A-Za-z_.]+)`")
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
OUT = re.compile(r"^(no test|no name|not supported:)")


def rows() -> Iterator[tuple[str, str, str]]:
    """Section, names and proof of every row."""
    section = ""
    for line in TEXT.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| ") and not line.startswith("| |"):
            names, proof = line.strip("| ").split(" | ")
            yield section, names, proof


ROWS = list(rows())


def is_had(section: str, name: str) -> bool:
    if name.startswith("."):
        return hasattr(Client, name[1:])
    if section == "Options":
        return name in {one.name for one in dataclasses.fields(Options)}
    if name.startswith("testing."):
        return hasattr(importlib.import_module("parley.testing"), name.partition(".")[2])
    return any(hasattr(importlib.import_module(module), name) for module in MODULES)


PARAMETERS = {"async_", "continue_", "dry_run", "startup"}


@pytest.mark.parametrize(("section", "names", "proof"), ROWS, ids=[names[:40] for _, names, _ in ROWS])
def test_a_row_has_names_that_can_be_had_and_tests_that_exist(section: str, names: str, proof: str) -> None:
    assert [name for name in NAME.findall(names) if name not in PARAMETERS and not is_had(section, name)] == []
    assert TEST.search(proof) or OUT.match(proof)
    assert [test for path, test in TEST.findall(proof) if test not in names_in(path)] == []


def names_in(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_text_above_the_rows_names_tests_that_exist() -> None:
    assert [test for path, test in TEST.findall(TEXT) if test not in names_in(path)] == []


@pytest.mark.parametrize("kind", [Client, Options])
def test_no_method_and_no_option_is_left_out(kind: type) -> None:
    told = {name.lstrip(".") for _, names, _ in ROWS for name in NAME.findall(names)}
    if kind is Options:
        official = {one.name for one in dataclasses.fields(Options)} - {*OWN_OPTIONS}
    else:
        official = {name for name in dir(Client) if not name.startswith("_")} - {*OTHER_METHODS}

    assert sorted(official - told) == []


OTHER_METHODS = (
    *("close", "connected", "server_info", "pid", "session_id", "exit_code", "request", "end_input"),
    *("send", "rewind", "mcp_status", "mcp_reconnect", "mcp_toggle", "context_usage"),
)
"""What is said of the client itself, and second names."""
OWN_OPTIONS = tuple(one.name for one in dataclasses.fields(Options))[
    [one.name for one in dataclasses.fields(Options)].index("engine") :
]


def test_every_function_is_reported() -> None:
    told = {name for _, names, _ in ROWS for name in NAME.findall(names)}
    functions = {name for name in parley.__all__ if name.islower() and callable(getattr(parley, name))}

    assert sorted(functions - told) == []
