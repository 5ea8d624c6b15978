"""`parley conform-client`: run the conformance suite on a client program."""

from __future__ import annotations

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.conformance.engine import find_executable, read_plan, report, show_progress
from parley.cli.commands.subcommand import GivenArgs, run_command
from parley.conformance.client.runner import run_client_suite


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["conform-client"], argv, {"": conform_client})


def conform_client(given: GivenArgs) -> int:
    """Raises UsageError."""
    import asyncio

    command = (find_executable(given.words[0]), *given.words[1:])
    return report(asyncio.run(run_client_suite(command, read_plan(given), show_progress)), given)
