"""`parley mcp`: which module runs each of its actions."""

from __future__ import annotations

from importlib import import_module

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command

HANDLERS = {
    "add": "edit:add",
    "add-json": "edit:add_json",
    "get": "health:get",
    "list": "health:list_servers",
    "remove": "edit:remove",
    "reset-project-choices": "edit:reset_project_choices",
    "serve": "serve:serve",
}


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    return run_command(COMMANDS["mcp"], argv, dict.fromkeys(HANDLERS, run))


def run(given: GivenArgs) -> int:
    module, _, function = HANDLERS[given.action].partition(":")
    return int(getattr(import_module(f"parley.cli.commands.mcp.{module}"), function)(given))
