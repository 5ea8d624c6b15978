"""Generate the tables of docs/conformance.md from the checks and from recorded outcomes.

    python scripts/gen_conformance.py                                       the page, from the recorded outcomes
    python scripts/gen_conformance.py Parley=ours.json Claude=other.json    record outcomes first

A recorded outcome is a report of `parley conform --json`, reduced to the status of each check. They are kept in
scripts/reference/conformance.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from pages import ROOT, fill, main, table

from parley.conformance.registry import EXCUSED, LEVELS, REQUIRED, read_suite
from parley.conformance.report import read_outcome
from parley.conformance.scenario import EngineCheck, read_behaviours

PAGE = "docs/conformance.md"
RECORDED = ROOT / "scripts" / "reference" / "conformance.json"
SUITE = read_suite()
CHECKS = SUITE.checks
SIGNS = {"passed": "yes", "failed": "**no**", "skipped": "-", "": "not run"}


def record(given: list[str]) -> None:
    """Keep the status of each check of the reports, beside those of checks that were not run again."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    for word in given:
        label, _, path = word.partition("=")
        outcome = read_outcome(path)
        states = {check.id: check.status for check in outcome.checks}
        known = recorded.get(label, {}).get("checks", {})
        recorded[label] = {"version": outcome.version, "checks": {**known, **states}}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


def pages() -> dict[str, str]:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    parts = {"scores": scores(recorded), "checks": checks(recorded), "excused": excused()}
    return {PAGE: fill(PAGE, {name: "\n".join(lines) for name, lines in parts.items()})}


def scores(recorded: dict[str, dict[str, object]]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[EngineCheck]] = {}
    for check in CHECKS.values():
        groups.setdefault((check.behaviour.level, check.behaviour.area), []).append(check)
    header = ("level", "area", "checks", *(f"{label} ({found['version']})" for label, found in recorded.items()))
    rows = []
    for (level, area), members in sorted(groups.items(), key=lambda item: LEVELS.index(item[0][0])):
        rows.append((level, area, str(len(members)), *(count(found, members) for found in recorded.values())))
    every = list(CHECKS.values())
    rows.append(("**all**", "", str(len(every)), *(count(found, every) for found in recorded.values())))
    yield from table(header, rows)
    required = [row for row in read_behaviours().values() if row.priority in REQUIRED]
    covered = {row for check in CHECKS.values() for row in check.rows}
    yield ""
    yield (
        f"{len(SUITE.scenarios)} scenarios, {len(CHECKS)} checks, {len(required)} required behaviours, of which "
        f"{sum(row.id in covered for row in required)} have a check."
    )


def count(found: dict[str, object], members: list[EngineCheck]) -> str:
    """`10 of 11`, without advice; `-` if nothing was judged."""
    states = found["checks"]
    assert isinstance(states, dict)
    judged = [states.get(check.id) for check in members if not check.is_advice]
    judged = [state for state in judged if state in ("passed", "failed")]
    return f"{judged.count('passed')} of {len(judged)}" if judged else "-"


def checks(recorded: dict[str, dict[str, object]]) -> Iterator[str]:
    header = ("check", "expects", "basis", *recorded)
    for level in LEVELS:
        yield f"### {level.capitalize()}"
        yield ""
        members = [check for check in CHECKS.values() if check.behaviour.level == level]
        yield from table(header, (check_row(check, recorded) for check in members))
        yield ""


def check_row(check: EngineCheck, recorded: dict[str, dict[str, object]]) -> tuple[str, ...]:
    states = []
    for found in recorded.values():
        known = found["checks"]
        assert isinstance(known, dict)
        states.append(SIGNS[known.get(check.id, "")])
    advice = " (advice)" if check.is_advice else ""
    text = check.expects.replace("|", "\\|").replace("<", "&lt;")
    basis = "; ".join(filter(None, (check.basis.replace("|", "\\|"), check.complaint)))
    return (f"`{check.id}`{advice}", text, basis, *states)


def excused() -> Iterator[str]:
    yield from table(("behaviour", "why it has no check"), ((f"`{row}`", why) for row, why in EXCUSED.items()))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if "=" in word]
    if words:
        record(words)
    raise SystemExit(main(pages(), [word for word in sys.argv[1:] if "=" not in word]))
