"""`parley schema`: the messages of the protocol."""

from __future__ import annotations

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_json


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["schema"], argv, {"": show_schema})


def show_schema(given: GivenArgs) -> int:
    from parley.protocol.schema import build_schema

    return write_json(build_schema())
