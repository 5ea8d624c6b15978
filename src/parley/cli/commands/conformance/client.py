"""`parley conform-client`: run the conformance suite on a client program."""

from __future__ import annotations

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.conformance.engine import find_executable, read_plan, report, show_progress
from parley.cli.commands.subcommand import GivenArgs, run_command
from parley.conformance.client import run_client_suite, select_client_checks
from parley.errors import InvalidArguments


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["conform-client"], argv, {"": conform_client})


def conform_client(given: GivenArgs) -> int:
    """Raises UsageError."""
    import asyncio

    plan = read_plan(given)
    if not select_client_checks(plan):
        raise InvalidArguments(f"no check matches --only {','.join(plan.only)}; without --only, all checks run")
    command = (find_executable(given.words[0]), *given.words[1:])
    return report(asyncio.run(run_client_suite(command, plan, show_progress)), given)
