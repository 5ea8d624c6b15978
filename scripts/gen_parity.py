"""Generate the tables of docs/parity.md from the rows in `scripts/parity/rows/`, which `drift.py` checks."""

from __future__ import annotations

from drift import load_tables
from pages import fill, main
from parity.page import lines

PAGE = "docs/parity.md"


def pages() -> dict[str, str]:
    return {PAGE: fill(PAGE, {"page": "\n".join(lines(load_tables()))})}


if __name__ == "__main__":
    raise SystemExit(main(pages()))
