"""`parley trust`: which folders may act through their settings.

parley trust DIR            what the settings of this folder say counts from now on
parley trust --forget DIR   it counts no more
parley trust --list         the folders that are trusted
"""

from __future__ import annotations

import os
import sys

from parley.compose.launch_context import LaunchContext
from parley.errors import UsageError
from parley.protocol.options import CliOptions
from parley.settings.base import SettingsWriteError, printable

USAGE = "usage: parley trust DIR | parley trust --forget DIR | parley trust --list"


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    try:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in run(argv)))
    except SettingsWriteError as exc:
        raise UsageError(str(exc)) from None
    return 0


def run(argv: list[str]) -> list[str]:
    match argv:
        case ["--help" | "-h"]:
            return [USAGE]
        case ["--list"]:
            return open_context("/").settings.trusted_folders()
        case ["--forget", folder] if folder:
            return [f"{open_context(folder).settings.record_trust(False)} is not trusted"]
        case ["--", folder] if folder:
            return trust(folder)
        case [folder] if folder and not folder.startswith("-"):
            return trust(folder)
    raise UsageError(USAGE)


def trust(folder: str) -> list[str]:
    """Trust a folder, and say what a person lets into effect who does that."""
    desk = open_context(folder).settings
    acting = desk.trust_dependent_entries()  # read once: what is shown is what is recorded
    news = [f"  in effect: {said} ({path})" for said, path in acting if not desk.is_in_effect(said)]
    return [f"{desk.record_trust(True, acting)} is trusted", *news]


def open_context(folder: str) -> LaunchContext:
    return LaunchContext(CliOptions(), dict(os.environ), os.path.abspath(folder))
