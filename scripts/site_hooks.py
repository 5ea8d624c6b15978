"""MkDocs hooks: publish the examples and the project files together with `docs/`.

Pages link to each other by their paths in the repository, so that the links also work on GitHub. `on_files` adds the
files outside `docs/`, and `on_page_markdown` rewrites links to the paths on the site. `mkdocs.yml` names this file.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PROJECT_FILES = ["LICENSE", *(path.name for path in ROOT.glob("*.md"))]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def list_sources() -> dict[str, str]:
    """Paths on the site by paths in the repository."""
    docs = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*") if path.is_file()]
    examples = [f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.is_file()]
    return (
        {path: path.removeprefix("docs/") for path in docs}
        | {path: path for path in examples}
        | {path: f"project/{path}" for path in PROJECT_FILES}
    )


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    from mkdocs.structure.files import File

    for path, site_path in list_sources().items():
        if not path.startswith("docs/"):
            files.append(File.generated(config, site_path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    site_paths = list_sources()
    here = page.file.src_uri
    folder = posixpath.dirname(next(path for path, site_path in site_paths.items() if site_path == here))

    def rewrite(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        target = site_paths.get(path) or site_paths.get(f"{path}/README.md")
        if target is None:
            return link[0]  # MkDocs reports it.
        return f"]({posixpath.relpath(target, posixpath.dirname(here) or '.')}"

    return LINK.sub(rewrite, markdown)
