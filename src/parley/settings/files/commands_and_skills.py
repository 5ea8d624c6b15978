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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.base import Plugin, ProjectTrust, PromptTemplate, SettingsProblem
from parley.settings.files import frontmatter

NAME = re.compile(r"\w[\w-]*(\.\w[\w-]*)*(:\w[\w-]*(\.\w[\w-]*)*)*")
"""A name has no slash and no two dots in a row, so it is safe in a path."""
SKILL_FILE = "SKILL.md"
KINDS = ("skill", "command")
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
    kinds: tuple[str, ...] = KINDS
    is_strict: bool = False
    """Whether a skill without a name and a description, as the Agent Skills specification asks for, is left out."""


def list_folders(
    of_user: Iterable[str],
    of_project: Iterable[str],
    project: str,
    trust: ProjectTrust | None,
    plugins: Iterable[Plugin],
) -> list[TemplateFolder]:
    """The folders of a session. The first that defines a name wins. `trust` is None if the project is not trusted."""
    found = [TemplateFolder(folder=path, source="user", is_trusted=True, kinds=find_kinds(path)) for path in of_user]
    for path in of_project:
        folder = TemplateFolder(folder=path, source="project", beneath=(project,), kinds=find_kinds(path))
        if trust is not None:
            check = partial(trust.find_obstacle, "project")
            folder = msgspec.structs.replace(folder, is_trusted=True, obstacle=check)
        found.append(folder)
    return [*found, *map(plugin_folder, plugins)]


def find_kinds(path: str) -> tuple[str, ...]:
    """Commands are Claude Code's; the folder `.agents`, which agents share, has only skills."""
    return ("skill",) if os.path.basename(path) == ".agents" else KINDS


def plugin_folder(plugin: Plugin) -> TemplateFolder:
    return TemplateFolder(
        folder=plugin.path,
        source="plugin",
        prefix=f"{plugin.name}:",
        beneath=(plugin.path,),
        is_trusted=True,
        is_strict=plugin.is_portable,
    )


def load_templates(folders: Sequence[TemplateFolder]) -> tuple[list[PromptTemplate], list[SettingsProblem]]:
    """Return the commands and skills of some folders, and the problems of invalid files."""
    found: dict[str, PromptTemplate] = {}
    problems: list[SettingsProblem] = []
    for folder in folders:
        for kind in folder.kinds:
            for name, path in LISTERS[kind](folder.folder):
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


LISTERS: dict[str, Callable[[str], Iterator[tuple[str, str]]]] = {"skill": skill_files, "command": command_files}


def read_template(
    folder: TemplateFolder, kind: Literal["command", "skill"] | str, name: str, path: str
) -> PromptTemplate:
    """Raises UnreadableFile or FrontmatterError."""
    found = safe_read.read_file(path, folder.beneath, MOST_BYTES)
    head, text = frontmatter.split_frontmatter(found.text())
    if NAME.fullmatch(name.removeprefix(folder.prefix)) is None:
        raise safe_read.UnreadableFile(
            f"invalid name {name!r} (use letters, digits, `-`, `_` and single dots inside the name)"
        )
    if folder.is_strict and kind == "skill":
        check_portable_skill(head, name.removeprefix(folder.prefix))
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


def check_portable_skill(head: Json, name: str) -> None:
    """Raises UnreadableFile if the front matter does not follow the Agent Skills specification."""
    if head.get("name") != name or re.fullmatch(r"(?!.*--)[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?", name) is None:
        raise safe_read.UnreadableFile(f"`name` must be that of its folder, {name!a}, in a-z, 0-9 and single `-`")
    if not to_text(head.get("description")):
        raise safe_read.UnreadableFile("`description` is missing")


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
