"""`parley trust`: manage which folders' settings take full effect.

parley trust DIR            trust the settings of this folder
parley trust --forget DIR   stop trusting it
parley trust --list         list trusted folders
"""

from __future__ import annotations

import os

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_help, write_json, write_lines
from parley.compose.launch_context import LaunchContext
from parley.errors import InvalidArguments, UsageError
from parley.protocol.base import Json
from parley.protocol.options import CliOptions
from parley.settings.base import SettingsWriteError, printable


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["trust"], argv, {"": run})


def run(given: GivenArgs) -> int:
    folders = [*given.words, *given.all("forget")]
    if not folders and not given.has("list"):
        return write_help(COMMANDS["trust"])
    if len(folders) + given.has("list") > 1 or "" in folders:
        raise InvalidArguments("use only one of DIR, --forget DIR and --list")
    try:
        if given.has("list"):
            result = list_trusted()
        else:
            result = forget(folders[0]) if given.has("forget") else trust(folders[0])
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None
    if given.has("json"):
        return write_json(result)
    return write_lines(map(printable, format_result(result)))


def list_trusted() -> Json:
    return {"trusted": open_context("/").settings.trusted_folders()}


def forget(folder: str) -> Json:
    return {"folder": open_context(folder).settings.record_trust(False), "is_trusted": False}


def trust(folder: str) -> Json:
    """Trust a folder; the result names the settings which take effect by this."""
    settings = open_context(folder).settings
    entries = settings.trust_dependent_entries()  # read once, so that what is shown is what is recorded
    effects = [{"setting": text, "file": path} for text, path in entries if not settings.is_in_effect(text)]
    return {"folder": settings.record_trust(True, entries), "is_trusted": True, "in_effect": effects}


def format_result(result: Json) -> list[str]:
    if "trusted" in result:
        return list(result["trusted"])
    if not result["is_trusted"]:
        return [f"{result['folder']} is no longer trusted"]
    effects = [f"  in effect: {row['setting']} ({row['file']})" for row in result["in_effect"]]
    return [f"{result['folder']} is trusted", *effects]


def open_context(folder: str) -> LaunchContext:
    return LaunchContext(CliOptions(), dict(os.environ), os.path.abspath(folder))
