"""Load commands and skills from files.

    commands/build.md, commands/web/build.md      /build and /web:build
    skills/release/SKILL.md                       /release, which the model may also use

The frontmatter may have `description`, `argument-hint`, `allowed-tools`, `model`,
`disable-model-invocation` and `user-invocable`. The text itself needs no trust; commands that it runs,
rules and the model do (`PromptTemplate.is_trusted`).

If two have the same name, the first is used: the user's before the project's, a skill before a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import PromptTemplate, SettingsProblem
from parley.settings.files import frontmatter

NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*(:\w[\w-]*(\.\w[\w-]*)*)*")
"""A name has no slash and no two dots in a row, so it is safe in a path."""
SKILL_FILE = "SKILL.md"
MOST_BYTES = 200_000
MOST_FILES = 1_000
DEEPEST = 5
MOST_DESCRIPTION_CHARS = 1_000


class TemplateFolder(Struct, frozen=True, kw_only=True):
    """A folder with `commands` and `skills` in it."""

    folder: str
    source: str
    prefix: str = ""
    """Put before all names."""
    beneath: tuple[str, ...] | None = None
    """Links must not lead out of these folders."""
    is_trusted: bool = False
    obstacle: Callable[[bytes], str | None] = lambda data: None
    """Returns why a file is not trusted although its folder is; None if it is trusted."""


def load_templates(folders: Sequence[TemplateFolder]) -> tuple[list[PromptTemplate], list[SettingsProblem]]:
    """Return the commands and skills of some folders, and the problems of invalid files."""
    found: dict[str, PromptTemplate] = {}
    problems: list[SettingsProblem] = []
    for folder in folders:
        for kind, list_paths in (("skill", skill_files), ("command", command_files)):
            for name, path in list_paths(folder.folder):
                try:
                    template = read_template(folder, kind, folder.prefix + name, path)
                except safe_read.MissingFile:
                    continue
                except (safe_read.UnreadableFile, frontmatter.FrontmatterError) as exc:
                    problems.append(SettingsProblem(path=path, text=f"not used as a {kind}: {exc}"))
                    continue
                found.setdefault(template.name, template)
    return sorted(found.values(), key=lambda template: (template.kind, template.name)), problems


def command_files(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the names and paths of commands; subfolders are part of the name."""
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


def read_template(
    folder: TemplateFolder, kind: Literal["command", "skill"] | str, name: str, path: str
) -> PromptTemplate:
    """Raises UnreadableFile or FrontmatterError."""
    found = safe_read.read_file(path, folder.beneath, MOST_BYTES)
    try:
        head, text = frontmatter.split_frontmatter(found.data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise safe_read.UnreadableFile(safe_read.NOT_UTF8) from None
    if NAME.fullmatch(name) is None:
        raise safe_read.UnreadableFile(
            f"invalid name {name!r} (use letters, digits, `-`, `_` and single dots inside the name)"
        )
    return PromptTemplate(
        name=name,
        kind="skill" if kind == "skill" else "command",
        source=folder.source,
        text=text,
        path=path,
        description=to_text(head.get("description"))[:MOST_DESCRIPTION_CHARS] or first_line(text),
        hint=to_text(head.get("argument-hint")),
        tools=tuple(frontmatter.parse_names(head.get("allowed-tools"))),
        model=to_text(head.get("model")) or None,
        model_invocable=not read_switch(head, "disable-model-invocation", False),
        user_invocable=read_switch(head, "user-invocable", True),
        is_trusted=folder.is_trusted and folder.obstacle(found.data) is None,
    )


def read_switch(head: Json, key: str, default: bool) -> bool:
    """Raises UnreadableFile if the value is not a boolean."""
    value = head.get(key, default)
    if not isinstance(value, bool):
        raise safe_read.UnreadableFile(f"{key} must be true or false, not {value!r}")
    return value


def to_text(value: Any) -> str:
    """Return a value as text. `argument-hint: [name]` means the text `[name]`, not a list."""
    if isinstance(value, list):
        return "[" + ", ".join(map(to_text, value)) + "]"
    return "" if value is None else " ".join(str(value).split())


def first_line(text: str) -> str:
    line = next((line.strip("# \t") for line in text.splitlines() if line.strip("# \t")), "")
    return line[:100]
