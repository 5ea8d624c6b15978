"""Generate the tables of keys in docs/settings.md from the table that the code uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from pages import fill, main, table

from parley.settings.keys import ANYONE, FLAG, GROUP, KEYS, MANAGED, PERSON, TRUSTED, KeyScope, SettingKey

PAGE = "docs/settings.md"
SANDBOX_PAGE = "docs/sandbox.md"
SCOPES: dict[KeyScope, str] = {
    ANYONE: "any layer",
    TRUSTED: "any layer; a project only if trusted",
    PERSON: "any layer except a project",
    MANAGED: "only managed settings",
    FLAG: "only `--settings`",
}
MERGES = {
    "any_true": "; true in any layer wins",
    "any_false": "; false in any layer wins",
    "union": "; the lists of all layers are combined",
    "lowest_effort": "; the lowest value of all layers wins",
    "first": "",
}


def pages() -> dict[str, str]:
    rows = [(key, row) for key, row in KEYS.items() if "." not in key]
    parts = {
        "works": table(("key", "value", "set by", "effect"), works(rows)),
        "permission_keys": table(("key", "value", "set by", "effect"), works(rows_of("permissions."))),
        "reported": table(("key", "why it has no effect"), reported(rows)),
        "quiet": table(("keys", "reason"), quiet(rows)),
    }
    sandbox = rows_of("sandbox.")
    unused = ((f"`{key}`", escape(row.note)) for key, row in sandbox if row.effect != "works")
    sandbox_parts = {
        "sandbox_keys": table(("key", "value", "set by", "effect"), works(sandbox)),
        "sandbox_unused": table(("key", "why it has no effect"), unused),
    }
    return {
        PAGE: fill(PAGE, {name: "\n".join(lines) for name, lines in parts.items()}),
        SANDBOX_PAGE: fill(SANDBOX_PAGE, {name: "\n".join(lines) for name, lines in sandbox_parts.items()}),
    }


def rows_of(prefix: str) -> list[tuple[str, SettingKey]]:
    """The keys of an object, with those of the objects in it."""
    found = [(key, row) for key, row in KEYS.items() if key.startswith(prefix) and row.kind is not GROUP]
    return [(key.removeprefix(prefix), row) for key, row in found]


def works(rows: Iterable[tuple[str, SettingKey]]) -> Iterator[tuple[str, ...]]:
    for key, row in sorted(rows, key=lambda found: found[0].lower()):
        if row.effect == "works":
            merge = "" if row.scope == MANAGED and row.merge == "any_true" else MERGES[row.merge]
            yield f"`{key}`", escape(row.kind.description), SCOPES[row.scope], escape(row.note + merge)


def reported(rows: Iterable[tuple[str, SettingKey]]) -> Iterator[tuple[str, ...]]:
    for key, row in sorted(rows, key=lambda found: found[0].lower()):
        if row.effect == "reported":
            off = ", ".join(f"`{str(value).lower()}`" for value in row.same_as_unset)
            yield f"`{key}`", escape(row.note) + (f" (the value {off} causes no warning)" if off else "")


def quiet(rows: Iterable[tuple[str, SettingKey]]) -> Iterator[tuple[str, ...]]:
    found = sorted((row.note, key) for key, row in rows if row.effect == "quiet")
    for note, group in groupby(found, key=lambda pair: pair[0]):
        yield ", ".join(f"`{key}`" for _, key in group), note


def escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main(pages()))
