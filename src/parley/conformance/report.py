"""The outcome of a suite: as text, as JSON, as HTML, and several side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import msgspec

from parley.conformance.registry import EXCUSED, LEVELS, REQUIRED
from parley.conformance.runner import CheckOutcome, SuiteOutcome
from parley.conformance.scenario import read_behaviours
from parley.errors import UsageError
from parley.protocol.base import Struct

WIDTH = 100


class Score(Struct, frozen=True):
    """How many checks passed. Advice and skipped checks do not count."""

    passed: int
    failed: int
    skipped: int = 0

    @property
    def percent(self) -> float:
        judged = self.passed + self.failed
        return 100 * self.passed / judged if judged else 0.0

    def __str__(self) -> str:
        judged = self.passed + self.failed
        text = f"{self.passed} of {judged} ({self.percent:.1f} %)" if judged else "-"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


def score(checks: Iterable[CheckOutcome]) -> Score:
    states = [check.status for check in checks if not check.is_advice]
    return Score(states.count("passed"), states.count("failed"), states.count("skipped"))


def group_checks(outcome: SuiteOutcome) -> dict[tuple[str, str], list[CheckOutcome]]:
    """The checks by level and area, in the order of the levels."""
    groups: dict[tuple[str, str], list[CheckOutcome]] = {}
    for check in outcome.checks:
        groups.setdefault((check.level, check.area), []).append(check)
    return dict(sorted(groups.items(), key=lambda item: LEVELS.index(item[0][0]) if item[0][0] in LEVELS else 9))


def count_behaviours(outcome: SuiteOutcome) -> tuple[int, int]:
    """How many required behaviours have only passing checks, and how many were judged."""
    states: dict[str, set[str]] = {}
    for check in outcome.checks:
        for row in check.rows if not check.is_advice else ():
            states.setdefault(row, set()).add(check.status)
    required = {row.id for row in read_behaviours().values() if row.priority in REQUIRED}
    judged = {row: found for row, found in states.items() if row in required and found != {"skipped"}}
    return sum("failed" not in found for found in judged.values()), len(judged)


def format_text(outcome: SuiteOutcome) -> list[str]:
    """The report for a terminal."""
    version = f" ({outcome.version})" if outcome.version else ""
    lines = [f"{outcome.name}{version}", "", f"{'level':10} {'area':14} checks passed"]
    for (level, area), checks in group_checks(outcome).items():
        lines.append(f"{level:10} {area:14} {score(checks)}")
    lines += ["", f"score: {score(outcome.checks)} in {outcome.seconds:.0f} s"]
    if outcome.kind == "engine":
        passed, judged = count_behaviours(outcome)
        lines.append(f"required behaviours (P0, P1): {passed} of {judged} judged")
    for check in outcome.checks:
        if check.status == "failed":
            lines += ["", *describe_failure(check)]
    return lines


def describe_failure(check: CheckOutcome) -> list[str]:
    word = "ADVICE" if check.is_advice else "FAILED"
    sent = check.sent.splitlines() or [""]
    return [
        f"{word} {check.id} (scenario {check.scenario}; behaviours {', '.join(check.rows)})",
        *(f"  {'sent:' if number == 0 else '':10}{line}" for number, line in enumerate(sent[:6])),
        f"  {'expected:':10}{check.expected}",
        f"  {'received:':10}{check.came}",
        f"  {'basis:':10}{check.basis}",
    ]


def to_json(outcome: SuiteOutcome) -> bytes:
    return msgspec.json.format(msgspec.json.encode(outcome), indent=1) + b"\n"


def read_outcome(path: str) -> SuiteOutcome:
    """Raises UsageError."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=SuiteOutcome)
    except (OSError, msgspec.DecodeError) as exc:
        raise UsageError(f"cannot read the report {path}: {exc} (write one with `--json FILE`)") from None


# Several engines.


def format_comparison(outcomes: Sequence[SuiteOutcome]) -> list[str]:
    """The scores by level, and the checks in which the engines differ."""
    names = [f"[{number}]" for number in range(1, len(outcomes) + 1)]
    lines = [f"{name} {outcome.name} {outcome.version}".rstrip() for name, outcome in zip(names, outcomes, strict=True)]
    lines += ["", f"{'level':10} {'area':14} " + " ".join(f"{name:>12}" for name in names)]
    groups = [group_checks(outcome) for outcome in outcomes]
    for key in dict.fromkeys(key for group in groups for key in group):
        cells = []
        for group in groups:
            found = score(group.get(key, ()))
            cells.append(f"{found.passed}/{found.passed + found.failed}" if found.passed + found.failed else "-")
        lines.append(f"{key[0]:10} {key[1]:14} " + " ".join(f"{cell:>12}" for cell in cells))
    totals = [score(outcome.checks) for outcome in outcomes]
    lines.append(f"{'all':25} " + " ".join(f"{f'{each.passed}/{each.passed + each.failed}':>12}" for each in totals))
    tables = [{check.id: check.status for check in outcome.checks} for outcome in outcomes]
    differing = [id for id in dict.fromkeys(id for table in tables for id in table)
                 if len({table.get(id, "-") for table in tables}) > 1]  # fmt: skip
    lines += ["", f"{len(differing)} checks differ"]
    lines += [f"{id:40} " + " ".join(f"{table.get(id, '-'):>12}" for table in tables) for id in differing]
    return lines


# HTML.

STYLE = """body{font:14px/1.5 system-ui,sans-serif;margin:2rem}
table{border-collapse:collapse;width:100%}
td,th{border:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}
th{background:#eee;position:sticky;top:0}
.passed{background:#e5f5e5}.failed{background:#fbe0e0}.skipped{background:#f2f2f2}pre{white-space:pre-wrap;margin:0;
font-size:12px;overflow-wrap:anywhere}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}th{background:#222}
td,th{border-color:#444}.passed{background:#12301a}.failed{background:#4a1818}.skipped{background:#222}}"""
HEADINGS = ("status", "check", "behaviours", "sent", "expected", "came", "basis")


def format_html(outcome: SuiteOutcome) -> str:
    """One page without references to others."""
    rows = []
    for (level, area), checks in group_checks(outcome).items():
        rows.append(f"<tr><th colspan={len(HEADINGS)}>{escape(level)}: {escape(area)}, {score(checks)}</th></tr>")
        rows += [html_row(check) for check in checks]
    title = escape(f"Conformance of {outcome.name} {outcome.version}".rstrip())
    head = "".join(f"<th>{name}</th>" for name in HEADINGS)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>Score: {score(outcome.checks)} in {outcome.seconds:.0f} s</p>"
        f"<table><tr>{head}</tr>{''.join(rows)}</table></html>\n"
    )


def html_row(check: CheckOutcome) -> str:
    status = f"{check.status} (advice)" if check.is_advice else check.status
    cells = (status, check.id, " ".join(check.rows), check.sent, check.expected, check.came, check.basis)
    inner = "".join(
        f"<td><pre>{escape(cell)}</pre></td>" if name in ("sent", "came") else f"<td>{escape(cell)}</td>"
        for name, cell in zip(HEADINGS, cells, strict=True)
    )
    return f'<tr class="{check.status}" id="{escape(check.id)}">{inner}</tr>'


def list_excused() -> list[str]:
    """The required behaviours without a check, and why."""
    return [f"{row}: {reason}" for row, reason in EXCUSED.items()]
