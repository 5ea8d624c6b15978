"""Load output styles: named texts that tell the model how to write its answers.

The setting `outputStyle` selects `output-styles/NAME.md` in the project's `.claude` or in the config directory, or one
of the built-in styles. A style is text and needs no trust; if both folders have it, that of a trusted project is used.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from parley.settings import safe_read
from parley.settings.base import DEFAULT_STYLE, OutputStyle, SettingsProblem, printable

NAME = r"\w[\w .-]{0,63}"
FRONT = r"(?sm)\A---\r?\n.*?^---\s*?$"
MOST_BYTES = 100_000
BUILT_IN = {
    "Explanatory": (
        "While you work, teach the user about the code. Before and after you write code, add a short note of two or "
        "three points that explains why the solution fits this code base: the pattern it follows, what was traded for "
        "what, what would surprise a newcomer. Write about this project, not about programming in general. The notes "
        "belong in your answer, never in the files. The task itself is done as completely as without them."
    ),
    "Learning": (
        "The user wants to learn by doing. Work together: do the routine parts yourself, and leave the user small "
        "pieces of two to ten lines where a real decision has to be made, such as a rule of the business, the handling "
        "of an error or the choice of a data structure. To hand over a piece, first write everything around it and put "
        "a `TODO(human)` comment at its place, then say what is ready, which piece is left, in which file, and what "
        "to think about when writing it. Hand over one piece at a time, end your answer there, and wait. When the "
        "user has written the piece, add one observation about it, without praise, and continue. Explain the choices "
        "you make yourself in a sentence or two."
    ),
}
"""The texts of the built-in styles."""


def find_style(name: str, config: Path, project: str | None, *, is_trusted: bool) -> OutputStyle:
    """Return the style without its frontmatter, or one without text and with a problem if it cannot be used.

    `is_trusted`: whether the project's style takes the place of the user's of the same name."""
    if name == DEFAULT_STYLE:
        return OutputStyle()
    if re.fullmatch(NAME, name) is None:
        return OutputStyle(problem=SettingsProblem(path="outputStyle", text=f"invalid style name {printable(name)!r}"))
    known = ", ".join(list_styles(config, project))
    problem = SettingsProblem(path="outputStyle", text=f"unknown style {name!r} has no effect (choose from {known})")
    folders: list[tuple[Path, tuple[str, ...] | None]] = [(config / "output-styles", None)]
    if project is not None:
        folders.insert(0 if is_trusted else 1, (Path(project, ".claude", "output-styles"), (project,)))
    for folder, beneath in folders:
        path = folder / f"{name}.md"
        try:
            text = safe_read.read_file(path, beneath, MOST_BYTES).text()
        except safe_read.MissingFile:
            continue
        except safe_read.UnreadableFile as exc:
            problem = SettingsProblem(path=str(path), text=f"not used as a style: {exc}")
            continue
        return OutputStyle(name=name, text=re.sub(FRONT, "", text).strip())
    if name in BUILT_IN:
        return OutputStyle(name=name, text=BUILT_IN[name])
    return OutputStyle(name=name, problem=problem)


def list_styles(config: Path | None, project: str | None) -> list[str]:
    """Return the names of the available styles, the default first."""
    folders = [config / "output-styles"] if config is not None else []
    folders += [Path(project, ".claude", "output-styles")] if project is not None else []
    found = set(BUILT_IN)
    for folder in folders:
        with suppress(OSError):
            names = {name.removesuffix(".md") for name in os.listdir(folder) if name.endswith(".md")}
            found |= {name for name in names if re.fullmatch(NAME, name)}
    return [DEFAULT_STYLE, *sorted(found - {DEFAULT_STYLE})]
