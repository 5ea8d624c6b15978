"""What the generators share: build the pages of the documentation in `build/docs`, from `docs/` and from the code.

    python scripts/pages.py                 copy `docs/` and run every generator: `make docs`

Every `gen_*.py` has `pages()`: text by path in the repository. What is below `docs/` is written below `build/docs/`,
and is not committed. A page in `docs/` has a placeholder where a generator writes: `fill` replaces the text between
`<!-- generated: NAME -->` and `<!-- end -->`. A file that is committed, because programs read it, is written in its
place; `--check` exits with 1 if it differs from the code.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = "build/docs"
PART = re.compile(r"<!-- generated: (\w+) -->")
BETWEEN = re.compile(rf"({PART.pattern})\n.*?(<!-- end -->)", re.DOTALL)


def main(pages: Mapping[str, str], arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Write the pages, or with `--check` name the committed files that differ. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Generate pages of the documentation from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a committed file is not current")
    if parser.parse_args(arguments).check:
        committed = {path: text for path, text in pages.items() if not path.startswith("docs/")}
        stale = [path for path, text in committed.items() if not is_current(root / path, text)]
        for path in stale:
            sys.stderr.write(f"{path} is not current; run `make docs`\n")
        return 1 if stale else 0
    for path, text in pages.items():
        target = root / (path.replace("docs", BUILD, 1) if path.startswith("docs/") else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


def is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def build() -> int:
    """Build all pages. Returns the exit code."""
    shutil.rmtree(ROOT / BUILD, ignore_errors=True)
    shutil.copytree(ROOT / "docs", ROOT / BUILD)
    for path in sorted(Path(__file__).parent.glob("gen_*.py")):
        main(import_module(path.stem).pages(), [])
    return 0


def fill(path: str, parts: Mapping[str, str]) -> str:
    """The page at `path` with its generated parts. Raises KeyError if the names of the parts differ."""
    page = (ROOT / path).read_text(encoding="utf-8")
    if missing := parts.keys() ^ set(PART.findall(page)):
        raise KeyError(f"{path} and its generator differ in the parts {sorted(missing)}")
    return BETWEEN.sub(lambda found: f"{found[1]}\n{parts[found[2]].strip()}\n{found[3]}", page)


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    raise SystemExit(build())
