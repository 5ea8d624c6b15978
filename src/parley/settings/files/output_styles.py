"""Load output styles: named texts that tell the model how to write its answers.

The setting `outputStyle` selects `output-styles/NAME.md` in the project's `.claude` or, if it is not
there, in the config directory. A style is text and needs no trust.
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


def find_style(name: str, config: Path, project: str | None) -> OutputStyle:
    """Return the style without its frontmatter, or the default style with a problem if it cannot be used."""
    if name == DEFAULT_STYLE:
        return OutputStyle()
    if re.fullmatch(NAME, name) is None:
        return OutputStyle(problem=SettingsProblem(path="outputStyle", text=f"invalid style name {printable(name)!r}"))
    problem = SettingsProblem(path="outputStyle", text=f"unknown style {name!r}; the default style is used")
    folders: list[tuple[Path, tuple[str, ...] | None]] = [(config / "output-styles", None)]
    if project is not None:
        folders.insert(0, (Path(project, ".claude", "output-styles"), (project,)))
    for folder, beneath in folders:
        path = folder / f"{name}.md"
        try:
            text = safe_read.read_file(path, beneath, MOST_BYTES).data.decode("utf-8-sig")
        except safe_read.MissingFile:
            continue
        except (safe_read.UnreadableFile, UnicodeDecodeError) as exc:
            problem = SettingsProblem(path=str(path), text=f"not used as a style: {exc}")
            continue
        return OutputStyle(name=name, text=re.sub(FRONT, "", text).strip())
    return OutputStyle(problem=problem)


def list_styles(config: Path | None, project: str | None) -> list[str]:
    """Return the names of the available styles, the default first."""
    folders = [config / "output-styles"] if config is not None else []
    folders += [Path(project, ".claude", "output-styles")] if project is not None else []
    found: set[str] = set()
    for folder in folders:
        with suppress(OSError):
            found |= {name.removesuffix(".md") for name in os.listdir(folder) if name.endswith(".md")}
    return [DEFAULT_STYLE, *sorted(name for name in found - {DEFAULT_STYLE} if re.fullmatch(NAME, name))]
