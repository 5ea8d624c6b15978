"""What `import parley` gives, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import parley

SOURCE = Path(parley.__file__)
LIGHT = frozenset({"parley", "parley.version"})


def test_importing_the_package_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import parley; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert set(loaded) - {"typing", "__future__"} - standard(loaded) == LIGHT


def standard(modules: list[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] in sys.stdlib_module_names}


@pytest.mark.parametrize("name", parley.__all__)
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(parley, name) is not None


def test_type_checkers_see_the_names_that_programs_get() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {
        alias.asname: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

    assert declared == {name: module for module, names in parley.HOMES.items() for name in names.split()}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = parley.no_such_name
