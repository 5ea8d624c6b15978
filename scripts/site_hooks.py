"""MkDocs hooks: publish the examples and project files together with the built pages, and Mermaid for the diagrams.

Pages link to each other by their paths in the repository, so that the links also work on GitHub. `on_files` adds the
files outside `docs/`, and `on_page_markdown` rewrites links to the paths on the site. `mkdocs.yml` names this file.

The theme fetches Mermaid from another server unless the page has loaded it. `on_post_page` loads our copy on pages with
a diagram, and refuses a page that loads anything from elsewhere.
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
REPOSITORY_FOLDERS = ("bench/", "scripts/", "src/", "tests/")
"""Not on the site: a link to them becomes its text."""
UNSEARCHED = ("parity.md", "conformance.md", "sdk-surface.md", "acp-schema.md", "reference/", "decisions/")
"""Tables for those who compare or develop; the search finds the pages for users."""
MERMAID = {"assets/mermaid.js": "dist/mermaid.tiny.js", "assets/mermaid.LICENSE": "LICENSE"}
"""Paths on the site, and in the package that `make site` fetches."""
FOREIGN = re.compile(r"""<(?:script|img|iframe)\b[^>]*\ssrc=["']?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//""")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def list_sources() -> dict[str, str]:
    """Paths on the site by paths in the repository."""
    built = ROOT / "build" / "docs"
    docs = [f"docs/{path.relative_to(built).as_posix()}" for path in built.rglob("*") if path.is_file()]
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
    for site_path, path in MERMAID.items():
        source = ROOT / "build" / "mermaid" / "package" / path
        files.append(File.generated(config, site_path, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    site_paths = list_sources()
    here = page.file.src_uri
    if here.startswith(UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    folder = posixpath.dirname(next(path for path, site_path in site_paths.items() if site_path == here))

    def rewrite(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        target = site_paths.get(path) or site_paths.get(f"{path}/README.md")
        if target is None:
            is_elsewhere = path.startswith(REPOSITORY_FOLDERS) and (ROOT / path).exists()
            return link["text"] if is_elsewhere else link[0]  # MkDocs reports the others.
        return f"[{link['text']}]({posixpath.relpath(target, posixpath.dirname(here) or '.')}{link['anchor'] or ''})"

    return LINK.sub(rewrite, markdown)


def on_post_page(output: str, page: Page, **_: Any) -> str:
    from mkdocs.exceptions import PluginError

    if 'class="mermaid"' in output:
        path = posixpath.relpath("assets/mermaid.js", posixpath.dirname(page.file.dest_uri) or ".")
        output = output.replace("</head>", f'<script src="{path}"></script></head>', 1)
    if found := FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from another server: {found[0]}")
    return output
