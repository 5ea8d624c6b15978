"""Generate the table of flags in docs/cli.md from the option table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pages import fill, main, table

from parley.cli.help import format_value
from parley.protocol.options import FIELDS, ROWS, Option

PAGE = "docs/cli.md"


def pages() -> dict[str, str]:
    parts = {
        "flags": "\n".join(flag_tables()),
        "unflagged": "\n".join(table(("variable", "setting", "default", "effect"), unflagged_rows())),
    }
    return {PAGE: fill(PAGE, parts)}


def flag_tables() -> Iterator[str]:
    for heading, rows in groupby(ROWS, lambda row: row.group.heading):
        yield f"### {heading}"
        yield ""
        yield from table(("flag", "effect", "also set by"), map(flag_row, rows))
        yield ""


def flag_row(row: Option[Any]) -> tuple[str, ...]:
    flags = ", ".join(map(code, [*row.flags[:-1], row.flags[-1] + format_value(row)]))
    return (flags, row.help + default(row, " Default: {}."), ", ".join(map(code, filter(None, sources(row)))))


def unflagged_rows() -> Iterator[tuple[str, ...]]:
    for row in FIELDS.values():
        if not row.flags:
            yield (*(code(source) if source else "" for source in sources(row)), default(row, "{}"), row.help)


def sources(row: Option[Any]) -> tuple[str, str]:
    return row.variable, row.setting


def default(row: Option[Any], form: str) -> str:
    return "" if row.default in (None, False, ()) else form.format(code(str(row.default)))


def code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    raise SystemExit(main(pages()))
