"""`parley trust`: which folders may act through their settings.

parley trust DIR            what the settings of this folder say counts from now on
parley trust --forget DIR   it counts no more
parley trust --list         the folders that are trusted
"""

from __future__ import annotations

import os
import sys

from parley.compose.launch_context import Basis
from parley.errors import UsageError
from parley.protocol.options import Options
from parley.settings.base import NotWritten, shown

USAGE = "usage: parley trust DIR | parley trust --forget DIR | parley trust --list"


def main(argv: list[str]) -> int:
    """Raises UsageError."""
    try:
        sys.stdout.write("".join(f"{shown(line)}\n" for line in answer(argv)))
    except NotWritten as flaw:
        raise UsageError(str(flaw)) from None
    return 0


def answer(argv: list[str]) -> list[str]:
    match argv:
        case ["--help" | "-h"]:
            return [USAGE]
        case ["--list"]:
            return basis("/").settings.trusted_folders()
        case ["--forget", folder] if folder:
            return [f"{basis(folder).settings.record_trust(False)} is not trusted"]
        case ["--", folder] if folder:
            return trust(folder)
        case [folder] if folder and not folder.startswith("-"):
            return trust(folder)
    raise UsageError(USAGE)


def trust(folder: str) -> list[str]:
    """Trust a folder, and say what a person lets into effect who does that."""
    desk = basis(folder).settings
    acting = desk.acting()  # read once: what is shown is what is recorded
    news = [f"  in effect: {said} ({path})" for said, path in acting if not desk.is_in_effect(said)]
    return [f"{desk.record_trust(True, acting)} is trusted", *news]


def basis(folder: str) -> Basis:
    return Basis(Options(), dict(os.environ), os.path.abspath(folder))
