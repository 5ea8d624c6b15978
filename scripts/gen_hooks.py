"""Generate the tables of docs/hooks.md from the tables that the code uses."""

from __future__ import annotations

from collections.abc import Iterable

from pages import fill, main, table

from parley.hooks.base import DEFAULT_SECONDS, MAX_CONTEXT_CHARS, Hook
from parley.hooks.event_spec import HookEventSpec
from parley.hooks.events import EVENTS, NEVER_FIRED
from parley.hooks.merge import RULES
from parley.hooks.output import MAX_OUTPUT_BYTES, MAX_REASON_CHARS
from parley.hooks.settings import KINDS

PAGE = "docs/hooks.md"


def pages() -> dict[str, str]:
    events = EVENTS.values()
    parts = {
        "events": table(
            ("event", "fires", "matcher is compared with", "`decision: block`", "`continue: false` ends"),
            map(event_row, events),
        ),
        "fields": table(("event", "input", "`hookSpecificOutput`"), map(field_row, events)),
        "merging": table(("reply", "result"), RULES.items()),
        "never": table(("event", "why it never fires"), NEVER_FIRED.items()),
        "handlers": table(("`type`", "fields of this type", "default timeout"), map(handler_row, KINDS.items())),
        "limits": table(("item", "limit"), limits()),
    }
    return {PAGE: fill(PAGE, {name: "\n".join(lines) for name, lines in parts.items()})}


def event_row(event: HookEventSpec) -> tuple[str, ...]:
    block = event.block + ("" if event.failure_blocks or not event.block else " (`onFailure` has no effect)")
    block += f"; if the hook fails, {event.failure}" if event.failure else ""
    block += "; the same if the hook fails" if event.on_failure == "block" else ""
    return (event.name, event.when, code([event.matched] if event.matched else []), block, event.stops)


def field_row(event: HookEventSpec) -> tuple[str, ...]:
    mark = "\\*\\*" if event.includes_effort else "\\*" if event.includes_mode else ""
    return (event.name + mark, code(event.fields), code(event.effects))


def handler_row(row: tuple[str, type[Hook]]) -> tuple[str, ...]:
    name, kind = row
    return (f"`{name}`", code(sorted(kind.keys)), f"{kind.default_seconds:g} s")


def code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def limits() -> list[tuple[str, ...]]:
    return [
        (
            "run time",
            f"{DEFAULT_SECONDS:g} s by default, or the hook's `timeout`; all SessionEnd hooks together have 2 s",
        ),
        ("`additionalContext`", f"{MAX_CONTEXT_CHARS:,} characters"),
        ("reasons and messages", f"{MAX_REASON_CHARS:,} characters"),
        (
            "output of a command",
            f"{MAX_OUTPUT_BYTES >> 20} MiB; longer JSON fails, and so does other text if a failure of the hook blocks",
        ),
        ("input of a callback", "1 MB per line; longer texts are cut. Commands get the complete input"),
    ]


if __name__ == "__main__":
    raise SystemExit(main(pages()))
