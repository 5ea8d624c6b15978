"""`parley mcp`: the table of its commands."""

from __future__ import annotations

from parley.cli.commands.subcommand import unknown_command, wants_help, write_lines
from parley.errors import UnknownCommand

USAGE = """\
usage: parley mcp add [-s SCOPE] [-e KEY=VALUE]... NAME [--] COMMAND [ARG ...]
       parley mcp add -t http|sse [-s SCOPE] [-H "NAME: VALUE"]... NAME URL
       parley mcp add-json [-s SCOPE] NAME JSON
       parley mcp list [--json]
       parley mcp get NAME [--json]
       parley mcp remove [-s SCOPE] NAME
       parley mcp reset-project-choices
       parley mcp serve [session options]

  add, add-json          add a server; put `--` before a command that has options of its own
  list, get              show servers and connect to them to check that they work
  remove                 remove a server, without -s from the scope that has it
  reset-project-choices  stop trusting the servers of .mcp.json
  serve                  serve the tools of Parley over stdin and stdout as an MCP server. Permission rules
                         apply, and what they do not allow is denied, because no one can be asked

SCOPE is local (default: you, in this project), user (you, in all projects) or project (.mcp.json, shared).
`--json` also works with add, add-json, remove and reset-project-choices."""
COMMANDS = {
    "add": "parley.cli.commands.mcp.edit:add",
    "add-json": "parley.cli.commands.mcp.edit:add_json",
    "get": "parley.cli.commands.mcp.health:get",
    "list": "parley.cli.commands.mcp.health:list_servers",
    "remove": "parley.cli.commands.mcp.edit:remove",
    "reset-project-choices": "parley.cli.commands.mcp.edit:reset_project_choices",
    "serve": "parley.cli.commands.mcp.serve:serve",
}
REFUSED = {
    "add-from-claude-desktop": "servers of Claude Desktop are not imported; use `parley mcp add-json`",
    "login": "Parley has no login in a browser; put a token into the headers of the server",
    "logout": "Parley stores no logins of MCP servers",
    "xaa": "it is not supported",
}


def main(argv: list[str]) -> int:
    """Raises UsageError or SessionError."""
    if wants_help(argv):
        return write_lines([USAGE])
    name, *rest = argv
    if name in REFUSED:
        raise UnknownCommand(f"`parley mcp {name}` is not available: {REFUSED[name]}")
    if name not in COMMANDS:
        raise unknown_command("mcp", name, COMMANDS)
    from importlib import import_module

    module, _, function = COMMANDS[name].partition(":")
    return int(getattr(import_module(module), function)(rest))
