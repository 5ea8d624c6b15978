"""`parley fake`: an engine that plays a scenario file, for tests of any client."""

from __future__ import annotations

import os
from pathlib import Path

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import GivenArgs, run_command, write_lines
from parley.cli.stdio import warn
from parley.testing.fake.scenario import Scenario, load_scenario
from parley.testing.launcher_script import write_launcher


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    return run_command(COMMANDS["fake"], argv, {"": run_fake})


def run_fake(given: GivenArgs) -> int:
    scenario = load_scenario(given.words[0])
    if given.has("check"):
        return write_lines([describe(scenario)])
    if given.has("install"):
        write_launcher(Path(given.one("install")), ["fake", str(Path(given.words[0]).absolute()), "--"])
        return write_lines([f"{given.one('install')} plays {given.words[0]}"])
    from parley.testing.fake.serve import read_command_line, serve_scenario

    return serve_scenario(scenario, read_command_line(given.words[1:], os.getcwd()), warn)


def describe(scenario: Scenario) -> str:
    steps = sum(len(turn.steps) for turn in scenario.turns)
    return f"{scenario.name}: turns: {len(scenario.turns)}, steps: {steps}, version: {scenario.file.version}"
