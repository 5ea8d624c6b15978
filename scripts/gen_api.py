"""The API reference, made from the code.

    python scripts/gen_api.py      writes docs/api.md

What a name is, is written down once, in its docstring and its annotations; a test fails while the page says
something else. A page by task is docs/guide.md.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any, is_typeddict

from pages import main

import parley

HEAD = """# API reference

Made from the code by `make docs`; do not edit. Every name is in `parley`; those of the official SDK
mean the same. [guide.md](guide.md) goes by task, [sdk.md](sdk.md) says what holds everywhere,
[sdk-surface.md](sdk-surface.md) compares with the official SDK.
"""


def pages() -> dict[str, str]:
    parts = [HEAD]
    for home, names in parley.HOMES.items():
        module = import_module(home)
        parts.append(f"## {home.rpartition('.')[2].replace('_', ' ').capitalize()}\n\n{first_words(module)}\n")
        parts += [section(name, getattr(module, name), comments(module)) for name in names.split()]
    return {"docs/api.md": "\n".join(parts)}


def first_words(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    told = thing.__doc__ or ""  # not what it inherits
    return " ".join(inspect.cleandoc(told).partition("\n\n")[0].split())


def section(name: str, value: Any, notes: dict[str, str]) -> str:
    real = getattr(value, "__name__", name)
    if isinstance(value, type) and real != name:
        return f"### `{name}`\n\nAnother name of `{real}`.\n"
    body = "\n".join(described(name, value, notes)).strip()
    return f"### `{name}`\n\n{body}\n" if body else f"### `{name}`\n"


def described(name: str, value: Any, notes: dict[str, str]) -> Iterator[str]:
    if inspect.isfunction(value):
        yield f"```\n{signature(name, value)}\n```"
        if inspect.getdoc(value):
            yield f"\n{first_words(value)}"
        return
    if not isinstance(value, type):
        yield notes.get(name) or f"```\n{name} = {source_of_alias(name, value)}\n```"
        return
    if value.__doc__ and not value.__doc__.startswith((f"{name}(", "dict(")):
        yield first_words(value)
    if "__init__" in vars(value) and not dataclasses.is_dataclass(value):
        yield f"\n```\n{signature(name, vars(value)['__init__']).removeprefix('def ').partition(' -> ')[0]}\n```"
    fields = list(rows(value))
    if fields:
        yield "\n| field | type | |\n|---|---|---|"
        yield from (f"| `{field}` | `{cell(kind)}` | {cell(told)} |" for field, kind, told in fields)
    for method, function in methods(value):
        yield f"\n```\n{signature(method, function)}\n```"
        if inspect.getdoc(function):
            yield f"\n{first_words(function)}"
    read = [(one, found) for one, found in inspect.getmembers(value) if isinstance(found, property) and found.fget]
    if read:
        yield "\n| property | type | |\n|---|---|---|"
    for one, found in read:
        kind = inspect.signature(found.fget).return_annotation if found.fget else ""
        yield f"| `{one}` | `{cell(annotation(kind))}` | {cell(first_words(found))} |"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def signature(name: str, function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    given = ", ".join(spelled(list(found.parameters.values())))
    returned = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}def {name}({given}){returned}"


STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def spelled(parameters: list[inspect.Parameter]) -> Iterator[str]:
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
        yield f"{stars}{one.name}{kind}" + ("" if one.default is one.empty else f" = {shown(one.default)}")


def annotation(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def rows(cls: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a class: name, type with default, and what the class says of it."""
    if not (dataclasses.is_dataclass(cls) or is_typeddict(cls)):
        return
    told = {name: text for each in reversed(cls.__mro__) for name, text in field_comments(each).items()}
    defaults = {one.name: default_of(one) for one in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    hints = {name: kind for each in reversed(cls.__mro__) for name, kind in inspect.get_annotations(each).items()}
    for name, kind in hints.items():
        if not name.startswith("_") and (not defaults or name in defaults):
            yield name, type_text(kind) + defaults.get(name, ""), told.get(name, "")


def type_text(kind: Any) -> str:
    return getattr(kind, "__forward_arg__", None) or annotation(kind)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    if field.default is dataclasses.MISSING:
        return ""
    return f" = {shown(field.default)}"


def shown(default: Any) -> str:
    """A default as it can be read; what has no such form is left to the code."""
    return repr(default) if isinstance(default, str | int | float | tuple | None) else "…"


def methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """What a class and those of ours above it can do, in the order in which it is written."""
    seen: set[str] = set()
    for each in cls.__mro__:
        if not each.__module__.startswith("parley.sdk"):
            continue
        for name, value in vars(each).items():
            if inspect.isfunction(value) and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


def comments(module: Any) -> dict[str, str]:
    """The texts behind the assignments of a module."""
    return texts_behind(ast.parse(inspect.getsource(module)).body)


def field_comments(cls: type) -> dict[str, str]:
    if not cls.__module__.startswith("parley."):
        return {}
    tree = ast.parse(inspect.getsource(import_module(cls.__module__)))
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
    return texts_behind(found[0].body) if found else {}


def texts_behind(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for before, after in pairwise(body):
        if isinstance(before, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr):
            target = before.target if isinstance(before, ast.AnnAssign) else before.targets[0]
            if isinstance(target, ast.Name) and isinstance(after.value, ast.Constant):
                found[target.id] = " ".join(str(after.value.value).split())
    return found


def source_of_alias(name: str, value: Any) -> str:
    """An alias as it is written in the module that makes it."""
    home = next(home for home, names in parley.HOMES.items() if name in names.split())
    source = inspect.getsource(import_module(home))
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.unparse(node.value)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return ast.unparse(node.value) if node.value is not None else str(value)
    return str(value)


if __name__ == "__main__":
    raise SystemExit(main(pages()))
