"""Commands and skills in files: texts with a name, which people wrote for a model.

    commands/build.md, commands/web/build.md      /build and /web:build
    skills/release/SKILL.md                       /release, which a model may also use by itself

The head of a file says the rest: `description`, `argument-hint`, `allowed-tools`, `model`,
`disable-model-invocation`, `user-invocable`. A text can do no harm of its own, so it needs no
trust; what acts does (`Recipe.may_act`).

Of two with one name the first counts: the person's before the project's, a skill before a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import Flaw, Recipe
from parley.settings.files import frontmatter

NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*(:\w[\w-]*(\.\w[\w-]*)*)*")
"""No name leads anywhere: there are no two dots and no slash in it."""
SKILL_FILE = "SKILL.md"
MOST_BYTES = 200_000
MOST_FILES = 1_000
DEEPEST = 5
MOST_DESCRIPTION_CHARS = 1_000


class Place(Struct, frozen=True, kw_only=True):
    """A folder with `commands` and `skills` in it."""

    folder: str
    source: str
    prefix: str = ""
    """What stands before all names."""
    beneath: tuple[str, ...] | None = None
    """The folders that no link may lead out of."""
    may_act: bool = False
    obstacle: Callable[[bytes], str | None] = lambda data: None
    """Why one of its files may not act all the same; None if it may."""


def gather(places: Sequence[Place]) -> tuple[list[Recipe], list[Flaw]]:
    """Everything that is there, and the files that cannot be used."""
    found: dict[str, Recipe] = {}
    flaws: list[Flaw] = []
    for kind, paths in (("skill", skill_files), ("command", command_files)):
        for place in places:
            for name, path in paths(place.folder):
                try:
                    recipe = read(place, kind, place.prefix + name, path)
                except safe_read.Absent:
                    continue
                except (safe_read.Unfit, frontmatter.Broken) as flaw:
                    flaws.append(Flaw(path=path, text=f"is not used as a {kind}: {flaw}"))
                    continue
                found.setdefault(recipe.name, recipe)
    return sorted(found.values(), key=lambda recipe: (recipe.kind, recipe.name)), flaws


def command_files(folder: str) -> Iterator[tuple[str, str]]:
    """The names and paths of commands; the folders on the way are part of a name."""
    top = os.path.join(folder, "commands")
    count = 0
    for path, folders, files in os.walk(top):
        inside = PurePosixPath(os.path.relpath(path, top)).parts
        folders[:] = sorted(folders) if len(inside) < DEEPEST else []
        for name in sorted(files):
            count += 1
            if name.endswith(".md") and count <= MOST_FILES:
                yield ":".join([*inside, name.removesuffix(".md")]), os.path.join(path, name)


def skill_files(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = sorted(os.listdir(os.path.join(folder, "skills")))
    except OSError:
        return
    for name in names[:MOST_FILES]:
        yield name, os.path.join(folder, "skills", name, SKILL_FILE)


def read(place: Place, kind: Literal["command", "skill"] | str, name: str, path: str) -> Recipe:
    """Raises Unfit or Broken."""
    found = safe_read.read(path, place.beneath, MOST_BYTES)
    try:
        head, text = frontmatter.read(found.data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise safe_read.Unfit("is no text in UTF-8") from None
    if NAME.fullmatch(name) is None:
        raise safe_read.Unfit(f"{name!r} is no name: letters, digits, `-`, `_` and single dots make one")
    return Recipe(
        name=name,
        kind="skill" if kind == "skill" else "command",
        source=place.source,
        text=text,
        path=path,
        description=plain(head.get("description"))[:MOST_DESCRIPTION_CHARS] or first_line(text),
        hint=plain(head.get("argument-hint")),
        tools=tuple(frontmatter.names(head.get("allowed-tools"))),
        model=plain(head.get("model")) or None,
        for_model=not says(head, "disable-model-invocation", False),
        for_person=says(head, "user-invocable", True),
        may_act=place.may_act and place.obstacle(found.data) is None,
    )


def says(head: Json, key: str, default: bool) -> bool:
    """Raises Unfit if it is neither yes nor no."""
    value = head.get(key, default)
    if not isinstance(value, bool):
        raise safe_read.Unfit(f"{key} must be true or false, not {value!r}")
    return value


def plain(value: Any) -> str:
    """A value as people wrote it: `[who]` is no list where a text is meant."""
    if isinstance(value, list):
        return "[" + ", ".join(map(plain, value)) + "]"
    return "" if value is None else " ".join(str(value).split())


def first_line(text: str) -> str:
    line = next((line.strip("# \t") for line in text.splitlines() if line.strip("# \t")), "")
    return line[:100]
