"""docs/parity.md, from the declared names and our rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from pages import table

from parity.declared import SECTIONS, Declarations, Section
from parity.rows import STATUSES, Row, Table

TITLES = {"works": "works", "refused": "refused loudly", "not-ours": "not ours", "silent": "silent"}
INTRODUCTION = """\
# Parity with the official packages

Every name that {versions} declare, and what Parley does with it:

- *works*: the named tests prove it (paths are below `tests/`);
- *refused loudly*: Parley does not have it and says so, in the quoted words;
- *not ours*: a service of the vendor, or a part of the vendor's own client;
- *silent*: accepted without effect and without a word. A defect, with which the test fails.

`scripts/drift.py` writes this page from the installed packages and the rows in `scripts/parity/rows/`. A test fails
if a declared name has no row, a row names nothing that is declared, or *works* names no test. `make drift` runs the
same check and the compatibility tests with the newest releases.
"""


def render(declarations: Declarations, tables: Mapping[str, Table]) -> str:
    return "\n".join(lines(declarations, tables)) + "\n"


def lines(declarations: Declarations, tables: Mapping[str, Table]) -> Iterator[str]:
    yield INTRODUCTION.format(versions=declarations.versions)
    counts = {section: count(section, declarations, tables[section.key]) for section in SECTIONS}
    yield from table(("section", "names", *TITLES.values()), map(summary_row, counts.items()))
    yield from table_end(sum(counts.values(), Counter()))
    for section in SECTIONS:
        yield f"\n## {section.title}\n"
        yield f"Declared in: {section.source}.\n"
        yield from table(("name", "status", "test, message or reason"), map(detail_row, tables[section.key].rows))


def count(section: Section, declarations: Declarations, rows: Table) -> Counter[str]:
    by_name = rows.by_name()
    return Counter(by_name[name].status for name in section.names(declarations) if name in by_name)


def summary_row(item: tuple[Section, Counter[str]]) -> tuple[str, ...]:
    section, found = item
    return (f"[{section.title}](#{anchor(section.title)})", *numbers(found))


def table_end(total: Counter[str]) -> Iterator[str]:
    yield f"| **all** | {' | '.join(f'**{number}**' for number in numbers(total))} |"


def numbers(found: Counter[str]) -> Iterator[str]:
    yield str(found.total())
    yield from (str(found[status]) for status in STATUSES)


def anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def detail_row(row: Row) -> tuple[str, ...]:
    names = code(row.name) + (f": {', '.join(map(code, row.fields))}" if row.fields else "")
    detail = ", ".join(map(code, row.detail.split())) if row.status == "works" else row.detail
    return names, TITLES[row.status], detail.replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`"
