"""Generate docs/api.md: the public names of the SDK as stubs, from their annotations and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, get_origin, is_typeddict

from pages import fill, main

import parley
from parley.exports import find_home, list_names

PAGE = "docs/api.md"
IN_HEAD = {"raw", "wire"}
MADE_BY_US = {"RunResult", "SyncTurn", "Turn"}
"""Classes whose constructor programs do not call."""


def pages() -> dict[str, str]:
    parts: list[str] = []
    homes: dict[str, list[str]] = {}
    for name in list_names():
        if (home := find_home(name)) is not None:
            homes.setdefault(home, []).append(name)
    for home, names in homes.items():
        module = import_module(home)
        parts.append(f"## {first_paragraph(module).removesuffix('.')}\n")
        stubs = "\n".join(spaced([list(stub(name, getattr(module, name), comments(module))) for name in names]))
        parts.append(f"```python\n{stubs}\n```\n")
    return {PAGE: fill(PAGE, {"page": "\n".join(parts)})}


def spaced(stubs: list[list[str]]) -> Iterator[str]:
    """A blank line before and after every stub of more than one line."""
    for number, lines in enumerate(stubs):
        if number and (len(lines) > 1 or len(stubs[number - 1]) > 1):
            yield ""
        yield from lines


def first_paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    text = thing.__doc__ or ""  # not an inherited one
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())


def stub(name: str, value: Any, notes: dict[str, str]) -> Iterator[str]:
    """The lines of a name, as in a stub file."""
    real = getattr(value, "__name__", name)
    if isinstance(value, type) and real != name:
        yield f"{name} = {real}"
    elif inspect.isfunction(value):
        yield from described(signature(name, value), first_paragraph(value))
    elif isinstance(value, type):
        yield from class_stub(name, value)
    else:
        yield f"{name} = {source_of_alias(name, value)}" + comment(notes.get(name, ""))


def class_stub(name: str, cls: type) -> Iterator[str]:
    is_generated = (cls.__doc__ or "").startswith((f"{name}(", "dict("))  # by dataclass or TypedDict
    head = f"class {name}({', '.join(parents(cls))})" if parents(cls) else f"class {name}"
    yield f"{head}:"
    body = [f'"""{first_paragraph(cls)}"""'] if cls.__doc__ and not is_generated else []
    body += [f"{field}: {kind}{comment(text)}" for field, kind, text in rows(cls)]
    body += members(cls)
    yield from (f"    {line}" for line in body or ["..."])


def members(cls: type) -> Iterator[str]:
    """Constructor, methods and properties."""
    is_called = cls.__name__ not in MADE_BY_US and not getattr(cls, "_is_protocol", False)
    if "__init__" in vars(cls) and not dataclasses.is_dataclass(cls) and is_called:
        yield signature("__init__", vars(cls)["__init__"]).partition(" -> ")[0]
    for method, function in methods(cls):
        if function.__name__ != method:
            yield f"{method} = {function.__name__}  # another name; prefer {function.__name__}"
        else:
            yield from described(signature(method, function), first_paragraph(function))
    for name, found in inspect.getmembers(cls):
        get = found.fget if isinstance(found, property) else getattr(found, "func", None)  # of a cached_property
        if get is not None and name not in IN_HEAD:
            kind = annotation(inspect.signature(get).return_annotation)
            yield f"{name}: {kind}{comment(first_paragraph(found))}"


def described(code: str, text: str) -> Iterator[str]:
    yield f"{code}:" if text else code
    if text:
        yield f'    """{text}"""'


def comment(text: str) -> str:
    return f"  # {text}" if text else ""


def parents(cls: type) -> list[str]:
    """The public classes that a class inherits from, read from its source: a TypedDict does not know them."""
    bases = node.bases if (node := source_of_class(cls)) else []
    return [base.id for base in bases if isinstance(base, ast.Name) and base.id in parley.__all__]


def signature(name: str, function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    parameters = ", ".join(format_parameters(list(found.parameters.values())))
    returned = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}def {name}({parameters}){returned}"


STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def format_parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for one in parameters:
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred |= one.kind is one.VAR_POSITIONAL
        stars = STARS.get(one.kind, "")
        kind = "" if one.annotation is one.empty else f": {annotation(one.annotation)}"
        yield f"{stars}{one.name}{kind}" + ("" if one.default is one.empty else f" = {format_default(one.default)}")


def annotation(kind: Any) -> str:
    plain = isinstance(kind, type) and get_origin(kind) is None
    return kind if isinstance(kind, str) else kind.__name__ if plain else str(kind).replace("typing.", "")


def rows(cls: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a class: name, type with default, and comment."""
    if not (dataclasses.is_dataclass(cls) or is_typeddict(cls)):
        return
    texts = {name: text for each in reversed(cls.__mro__) for name, text in field_comments(each).items()}
    defaults = {one.name: default_of(one) for one in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    inherited = {name for parent in parents(cls) for name in inspect.get_annotations(getattr(parley, parent))}
    hints = {name: kind for each in reversed(cls.__mro__) for name, kind in inspect.get_annotations(each).items()}
    hints = {name: kind for name, kind in hints.items() if name not in inherited}
    for name, kind in hints.items():
        if not name.startswith("_") and (not defaults or name in defaults):
            yield name, type_text(kind) + defaults.get(name, ""), texts.get(name, "")


def type_text(kind: Any) -> str:
    return getattr(kind, "__forward_arg__", None) or annotation(kind)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    if field.default is dataclasses.MISSING:
        return ""
    return f" = {format_default(field.default)}"


def format_default(default: Any) -> str:
    """A default if it has a readable form, else an ellipsis."""
    return repr(default) if isinstance(default, str | int | float | tuple | None) else "…"


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods of a class and its private bases in source order, without those of its public bases."""
    seen = {name for parent in parents(cls) for name in vars(getattr(parley, parent))}
    for each in cls.__mro__:
        if not each.__module__.startswith("parley.sdk"):
            continue
        for name, value in vars(each).items():
            if inspect.isfunction(value) and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


def comments(module: Any) -> dict[str, str]:
    """The strings after the assignments of a module."""
    return strings_after(ast.parse(inspect.getsource(module)).body)


def field_comments(cls: type) -> dict[str, str]:
    node = source_of_class(cls)
    return strings_after(node.body) if node else {}


def source_of_class(cls: type) -> ast.ClassDef | None:
    if not cls.__module__.startswith("parley."):
        return None
    tree = ast.parse(inspect.getsource(import_module(cls.__module__)))
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__), None)


def strings_after(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for before, after in pairwise(body):
        if isinstance(before, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr):
            target = before.target if isinstance(before, ast.AnnAssign) else before.targets[0]
            if isinstance(target, ast.Name) and isinstance(after.value, ast.Constant):
                found[target.id] = " ".join(str(after.value.value).split())
    return found


def source_of_alias(name: str, value: Any) -> str:
    """The right-hand side of an alias in its module."""
    source = inspect.getsource(import_module(find_home(name) or "parley"))
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.unparse(node.value)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return ast.unparse(node.value) if node.value is not None else str(value)
    return str(value)


if __name__ == "__main__":
    raise SystemExit(main(pages()))
