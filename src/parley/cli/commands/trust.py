"""`parley trust`: manage which folders' settings take full effect.

parley trust DIR            trust the settings of this folder
parley trust --forget DIR   stop trusting it
parley trust --list         list trusted folders
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
            return [f"{open_context(folder).settings.record_trust(False)} is no longer trusted"]
        case ["--", folder] if folder:
            return trust(folder)
        case [folder] if folder and not folder.startswith("-"):
            return trust(folder)
    raise UsageError(USAGE)


def trust(folder: str) -> list[str]:
    """Trust a folder; returns lines that name the settings which take effect by this."""
    settings = open_context(folder).settings
    entries = settings.trust_dependent_entries()  # read once, so that what is shown is what is recorded
    lines = [f"  in effect: {text} ({path})" for text, path in entries if not settings.is_in_effect(text)]
    return [f"{settings.record_trust(True, entries)} is trusted", *lines]


def open_context(folder: str) -> LaunchContext:
    return LaunchContext(CliOptions(), dict(os.environ), os.path.abspath(folder))
