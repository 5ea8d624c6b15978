"""Does `parley conform` find every defect of the broken engine?

    python -m tests.stress.conformance.found_defects [DEFECT ...] [--json FILE]

The whole suite runs once without a defect: a check that fails then is not counted. For each defect it runs until a
check fails. That check must fail a second time, so that a slow machine is not taken for a defect. Exit 1 if a defect is
not found.

See also: `defects.py` has the defects, `test_found_defects.py` is the short form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from parley.conformance.runner import Plan, run_suite
from tests.stress.conformance.defects import DEFECTS

PROXY = Path(__file__).with_name("broken_engine.py")
DEADLINE_SECONDS = 20.0


def broken(defect: str) -> tuple[str, ...]:
    """The command of an engine with a defect; `none` has none."""
    engine = shutil.which("parley", path=str(Path(sys.executable).parent))
    assert engine is not None
    return (sys.executable, "-S", str(PROXY), defect, engine)


async def failing(defect: str, plan: Plan) -> list[str]:
    """The checks of a plan that fail with a defect."""
    outcome = await run_suite(broken(defect), plan)
    return [check.id for check in outcome.checks if check.status == "failed" and not check.is_advice]


async def find_defect(defect: str, excluded: Collection[str] = (), only: tuple[str, ...] = (), workers: int = 2) -> str:
    """A check that finds a defect, twice; empty if there is none."""
    plan = Plan(only=only, workers=workers, deadline_seconds=DEADLINE_SECONDS, stops_at_failure=True)
    for found in await failing(defect, plan):
        once = Plan(only=(found,), workers=workers, deadline_seconds=DEADLINE_SECONDS, stops_at_failure=True)
        if found not in excluded and found in await failing(defect, once):
            return found
    if only:
        return ""
    whole = Plan(workers=workers, deadline_seconds=DEADLINE_SECONDS)
    return next((found for found in await failing(defect, whole) if found not in excluded), "")


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("defects", nargs="*", default=list(DEFECTS))
    parser.add_argument("--json", help="write what was found to this file")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    findings: dict[str, str] = {}
    excluded = await failing("none", Plan(workers=given.workers, deadline_seconds=2 * DEADLINE_SECONDS))
    sys.stdout.write(f"without a defect these checks fail and are not counted: {excluded}\n")
    for name in given.defects:
        findings[name] = await find_defect(name, excluded, workers=given.workers)
        sys.stdout.write(f"{name:28} {findings[name] or 'NOT FOUND'}\n")
        sys.stdout.flush()
        if given.json:
            Path(given.json).write_text(json.dumps(findings, indent=1) + "\n")
    missed = [name for name, found in findings.items() if not found]
    sys.stdout.write(f"{len(findings) - len(missed)} of {len(findings)} defects found; missed: {missed}\n")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
