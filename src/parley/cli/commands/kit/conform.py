"""`parley conform` and `conform-client`: run the conformance suite on an engine or a client, or compare reports."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from parley.cli.commands.subcommand import GivenArgs, write_lines
from parley.cli.stdio import warn
from parley.conformance.client import run_client_suite, select_client_checks
from parley.conformance.registry import LEVELS
from parley.conformance.report import (
    format_comparison,
    format_html,
    format_text,
    list_excused,
    read_outcome,
    score,
    to_json,
)
from parley.conformance.runner import (
    DEADLINE_SECONDS,
    SuiteOutcome,
    SuitePlan,
    gateway_command,
    gateway_plan,
    is_gateway,
    run_suite,
    select_checks,
)
from parley.errors import InvalidArguments, UsageError

MAX_WORKERS = 32


def conform(given: GivenArgs) -> int:
    """Raises UsageError."""
    if given.has("compare"):
        if len(given.words) < 2:
            raise InvalidArguments("--compare needs at least two reports, written with --json FILE")
        return write_lines(format_comparison([read_outcome(path) for path in given.words]))
    plan = read_plan(given)
    if given.has("list"):
        checks = select_checks(plan)
        lines = [f"{check.id:44} {check.complaint or check.behaviour.level:9} {check.expects}" for check in checks]
        return write_lines([*lines, "", "Required behaviours without a check:", *list_excused()])
    if not given.words:
        raise InvalidArguments("missing argument ENGINE: the executable to check, after --")
    if not select_checks(plan):
        raise InvalidArguments(f"no check matches --only {','.join(plan.only)}; `parley conform --list` shows the ids")
    if is_gateway(given.words[0]):
        command, plan = gateway_command(given.words[0]), gateway_plan(plan)
    else:
        command = (find_executable(given.words[0]), *given.words[1:])
    return report(asyncio.run(run_suite(command, plan, show_progress)), given)


def read_plan(given: GivenArgs) -> SuitePlan:
    """Raises InvalidArguments."""
    levels = split_words(given.all("level"))
    if unknown := [level for level in levels if level not in LEVELS]:
        raise InvalidArguments(f"unknown level {unknown[0]!r} (choose from {', '.join(LEVELS)})")
    return SuitePlan(
        levels=tuple(levels) or LEVELS,
        suite=given.one("suite", "all"),
        only=tuple(split_words(given.all("only"))),
        workers=given.number("workers", 2, 1, MAX_WORKERS),
        deadline_seconds=max(1, given.number("timeout", int(DEADLINE_SECONDS))),
    )


def split_words(values: list[str]) -> list[str]:
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def find_executable(name: str) -> str:
    """Raises UsageError."""
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"no executable {name!r} was found; give a path, or a name that is on PATH")
    return str(Path(found).absolute())


def show_progress(name: str, failed: int) -> None:
    """Say on a terminal which scenario has ended."""
    if sys.stderr.isatty():
        warn(f"{name}: {failed} failed" if failed else name)


def report(outcome: SuiteOutcome, given: GivenArgs) -> int:
    """Write the reports; exit code 1 if a check failed. Raises UsageError."""
    for key, data in (("json", to_json), ("html", lambda each: format_html(each).encode())):
        if given.has(key):
            try:
                Path(given.one(key)).write_bytes(data(outcome))
            except OSError as exc:
                raise UsageError(f"cannot write the report {given.one(key)}: {exc.strerror}") from None
    return write_lines(format_text(outcome), int(score(outcome.checks).failed > 0))


def conform_client(given: GivenArgs) -> int:
    """Raises UsageError."""
    plan = read_plan(given)
    if not select_client_checks(plan):
        raise InvalidArguments(f"no check matches --only {','.join(plan.only)}; without --only, all checks run")
    command = (find_executable(given.words[0]), *given.words[1:])
    return report(asyncio.run(run_client_suite(command, plan, show_progress)), given)
