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

from parley.conformance.runner import SuitePlan, run_suite
from tests.stress.conformance.defects import DEFECTS

LIKELY = {
    "eof-aborts": "early-end-of-input", "error-exits-zero": "max-turns", "api-error-as-success": "api-error",
    "errors-lost": "max-turns", "limit-as-success": "max-turns", "top-level-error": "api-error",
    "blank-line-ends": "odd-lines", "big-line-lost": "big-line", "unknown-type-ends": "odd-lines",
    "resume-changes-id": "sessions", "resume-ignored": "sessions", "history-lost": "sessions",
    "fork-ignored": "sessions", "chosen-id-ignored": "sessions", "not-saved": "transcript",
    "prompt-echo-lost": "replay", "mode-unanswered": "control-requests", "unknown-request-ends": "control-requests",
    "errors-as-success": "control-requests", "answers-after-the-turn": "control-during-turn",
    "interrupt-ignored": "interrupt-tool", "interrupt-ends": "interrupt-tool", "set-model-ignored": "control-requests",
    "set-mode-ignored": "control-requests", "hooks-lost": "hooks", "agents-lost": "subagent",
    "queued-prompt-lost": "queued-prompt", "deny-ignored": "deny", "runs-without-asking": "deny",
    "fails-open": "bad-answers", "deny-text-lost": "deny", "deny-interrupt-ignored": "deny-interrupt",
    "updated-input-ignored": "changed-input", "updated-permissions-ignored": "changed-input", "denials-lost": "deny",
    "deny-rules-ignored": "rules", "allow-rules-ignored": "rules", "asks-before-tool-use": "allow",
    "request-without-tool-id": "allow", "string-suggestions": "allow", "hook-answers-ignored": "hook-decides",
    "hook-input-cut": "hooks", "hook-form-of-004": "hooks", "tool-result-id-wrong": "commands",
    "tool-error-hidden": "commands", "tool-output-cut": "commands", "second-result-lost": "commands",
    "tool-use-result-lost": "commands", "parent-lost": "subagent", "partials-lost": "stream-events",
    "delta-lost": "stream-events", "whole-message-lost": "stream-events", "max-turns-ignored": "max-turns",
    "budget-ignored": "max-budget", "structured-output-lost": "json-schema", "system-prompt-ignored": "prompt-flags",
    "mcp-config-ignored": "hosted-server", "tools-flag-ignored": "prompt-flags", "task-end-lost": "subagent",
    "idle-lost": "session-state", "compaction-silent": "compaction", "version-text": "version",
    "early-success": "resumed-turn", "system-changes": "resumed-turn", "cap-as-schema": "turn-cap-with-schema",
    "background-killed": "late-work", "idle-tools": "late-work", "waits-for-stdin": "open-stdin",
    "settings-ignored": "hooks-of-one-prompt", "result-emptied": "hooks-of-one-prompt",
    "agent-again": "hooks-of-agents",
    "reminders-sent-back": "hidden-texts",
    "agent-result-lost": "silent-agent", "image-unchecked": "broken-image", "agents-flag-ignored": "many-agents",
    "sources-ignored": "no-settings", "usage-wrong": "numbers", "model-usage-wrong": "numbers",
    "duration-wrong": "numbers", "kept-anyway": "not-kept", "command-as-prompt": "unknown-command",
    "text-on-stdin-lost": "prompt-on-stdin", "early-prompt-lost": "reopened", "server-failed": "http-server",
    "server-pending": "silent-server", "late-server-failed": "late-servers",
    "always-load-ignored": "always-loaded-server", "deferred-refused": "deferred-tool", "hour-ignored": "long-cache",
}  # fmt: skip
"""Where to look first, to save time: the other scenarios follow if no check of this one fails. Default: two-turns."""
PROXY = Path(__file__).with_name("broken_engine.py")
DEADLINE_SECONDS = 20.0


def broken(defect: str) -> tuple[str, ...]:
    """The command of an engine with a defect; `none` has none."""
    engine = shutil.which("parley", path=str(Path(sys.executable).parent))
    assert engine is not None
    return (sys.executable, "-S", str(PROXY), defect, engine)


async def failing(defect: str, plan: SuitePlan) -> list[str]:
    """The checks of a plan that fail with a defect. Advice counts if the plan names it."""
    outcome = await run_suite(broken(defect), plan)
    failed = [check for check in outcome.checks if check.status == "failed"]
    return [check.id for check in failed if not check.is_advice or check.id in plan.only]


async def find_defect(defect: str, excluded: Collection[str] = (), only: tuple[str, ...] = (), workers: int = 2) -> str:
    """A check that finds a defect, twice; empty if there is none."""
    first = only or (LIKELY.get(defect, "two-turns"), "every.*")
    plan = SuitePlan(only=first, workers=workers, deadline_seconds=DEADLINE_SECONDS, stops_at_failure=True)
    for found in await failing(defect, plan):
        if found not in excluded and found in (only or [found]) and found in await failing(defect, plan):
            return found
    if only:
        return ""
    whole = SuitePlan(workers=workers, deadline_seconds=DEADLINE_SECONDS)
    return next((found for found in await failing(defect, whole) if found not in excluded), "")


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("defects", nargs="*", default=list(DEFECTS))
    parser.add_argument("--json", help="write what was found to this file")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trust", action="store_true", help="do not run the suite without a defect first")
    given = parser.parse_args()
    findings: dict[str, str] = {}
    excluded = (
        []
        if given.trust
        else await failing("none", SuitePlan(workers=given.workers, deadline_seconds=2 * DEADLINE_SECONDS))
    )
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
