"""Every public name says what it is for, and every name that the documentation uses can be imported."""

from __future__ import annotations

import builtins
import inspect
import re
from typing import Any

import gen_api
import pytest

import parley
import parley.testing
import parley.types
from parley.hooks.events import EVENTS
from parley.tools.catalog import LISTED_NAMES, TOOLS
from tests.helpers import paths

OBJECTS = {name: getattr(parley, name) for name in parley.__all__ if name != "__version__"}
CLASSES = {name: value for name, value in OBJECTS.items() if isinstance(value, type)}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_a_docstring(name: str) -> None:
    text = CLASSES[name].__dict__.get("__doc__") or ""

    assert text
    assert not text.startswith((f"{CLASSES[name].__name__}(", "dict("))  # of a dataclass or TypedDict


@pytest.mark.parametrize("name", [name for name, value in OBJECTS.items() if inspect.isroutine(value)])
def test_a_function_has_a_docstring(name: str) -> None:
    assert OBJECTS[name].__doc__


def public_methods(cls: type) -> list[str]:
    """The methods and properties that are defined in Parley."""
    found = {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}
    functions = {name: value.fget if isinstance(value, property) else value for name, value in found.items()}
    return [
        name for name, value in functions.items() if inspect.isfunction(value) and value.__module__.startswith("parley")
    ]


@pytest.mark.parametrize("name", CLASSES)
def test_methods_and_properties_have_docstrings(name: str) -> None:
    cls = CLASSES[name]

    assert [method for method in public_methods(cls) if not inspect.getdoc(getattr(cls, method))] == []


@pytest.mark.parametrize(
    "name", ["Options", "AgentDefinition", "HookMatcher", "PermissionResultAllow", "ToolPermissionContext"]
)
def test_fields_have_docstrings(name: str) -> None:
    fields = [(field, text) for field, _, text in gen_api.rows(CLASSES[name])]

    assert len(fields) > 2
    assert [field for field, text in fields if not text and field != "behavior"] == []


@pytest.mark.parametrize("internal", ["put", "finish", "reached", "finish_up", "wake"])
def test_internals_are_not_in_public_classes(internal: str) -> None:
    assert not [name for name in ("Turn", "SyncTurn", "Client", "SyncClient") if hasattr(CLASSES[name], internal)]


# Names in the documentation.

PAGES = {path.name: path.read_text(encoding="utf-8") for path in paths.DOCS.glob("*.md")}
IMPORTED = re.compile(r"^from (parley(?:\.types|\.testing)?) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
QUOTED = re.compile(r"`([A-Z][a-z]+[A-Za-z]*[a-z])(?:\(|`|\.[a-z])")
"""Class names in running text."""
NOT_OURS = {
    *(name for name in dir(builtins) if name[0].isupper()),
    *(*TOOLS, *LISTED_NAMES, *EVENTS),
    "City",  # of an example
}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_imports_is_there(page: str) -> None:
    wanted = [
        (module, name.strip())
        for module, lines, line in IMPORTED.findall(PAGES[page])
        for name in (lines or line.partition("#")[0]).split(",")
        if name.strip()
    ]

    assert [each for each in wanted if not has(*each)] == []


def has(module: str, name: str) -> bool:
    modules: dict[str, Any] = {"parley": parley, "parley.types": parley.types, "parley.testing": parley.testing}
    return hasattr(modules[module], name.partition(" as ")[0])


@pytest.mark.parametrize("page", ["guide.md", "sdk.md", "testing.md"])
def test_every_class_that_a_page_about_the_sdk_mentions_can_be_imported(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    mentioned = set(QUOTED.findall(text)) - NOT_OURS

    assert len(mentioned) > 2
    assert sorted(name for name in mentioned if not hasattr(parley, name)) == []
