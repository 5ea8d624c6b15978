"""Generate the pages that are tables kept by hand, in `scripts/reference/`: what tests prove, name by name."""

from __future__ import annotations

from pages import ROOT, fill, main

SOURCES = {
    "docs/acp-schema.md": "acp-schema.md",
    "docs/reference/dialect-coverage.md": "dialect-coverage.md",
    "docs/sdk-surface.md": "sdk-surface.md",
}


def pages() -> dict[str, str]:
    folder = ROOT / "scripts" / "reference"
    pages = {page: fill(page, {"page": (folder / name).read_text(encoding="utf-8")}) for page, name in SOURCES.items()}
    methods = (folder / "acp-methods.md").read_text(encoding="utf-8")
    return {**pages, "docs/acp.md": fill("docs/acp.md", {"methods": methods})}


if __name__ == "__main__":
    raise SystemExit(main(pages()))
