"""What the generators share: write the pages of `docs/`, or check that they are current.

Every `gen_*.py` has `pages()`, the text of each page by its path in the repository, and ends in `main(pages())`:

    python scripts/gen_hooks.py             write the pages
    python scripts/gen_hooks.py --check     exit with 1 if a page differs from the code

A page can be partly written by hand: `fill` replaces the text between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
PART = re.compile(r"<!-- generated: (\w+) -->")
BETWEEN = re.compile(rf"({PART.pattern})\n.*?(<!-- end -->)", re.DOTALL)


def main(pages: Mapping[str, str], arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Write the pages, or with `--check` name those that differ. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Generate pages of the documentation from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    if parser.parse_args(arguments).check:
        stale = [path for path, text in pages.items() if not is_current(root / path, text)]
        for path in stale:
            sys.stderr.write(f"{path} is not current; run `make docs`\n")
        return 1 if stale else 0
    for path, text in pages.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return 0


def is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def fill(path: str, parts: Mapping[str, str]) -> str:
    """The page at `path` with its generated parts replaced. Raises KeyError if their names differ."""
    page = (ROOT / path).read_text(encoding="utf-8")
    if missing := parts.keys() - set(PART.findall(page)):
        raise KeyError(f"{path} has no part {sorted(missing)}")
    return BETWEEN.sub(lambda found: f"{found[1]}\n{parts[found[2]].strip()}\n{found[3]}", page)


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
