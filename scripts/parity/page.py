"""The tables of docs/parity.md, from our rows: a test compares their names with those that are declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from pages import table

from parity.declared import SECTIONS, Section
from parity.rows import STATUSES, Row, Table

TITLES = {"works": "works", "refused": "refused loudly", "not-ours": "not ours", "silent": "silent"}


def lines(tables: Mapping[str, Table]) -> Iterator[str]:
    counts = {section: Counter(row.status for row in tables[section.key].by_name().values()) for section in SECTIONS}
    yield from table(("section", "names", *TITLES.values()), map(summary_row, counts.items()))
    yield from table_end(sum(counts.values(), Counter()))
    for section in SECTIONS:
        yield f"\n## {section.title}\n"
        yield f"Declared in: {section.source}.\n"
        yield from table(("name", "status", "test, message or reason"), map(detail_row, tables[section.key].rows))


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
