"""The folder that `cd` changes to."""

from __future__ import annotations

from collections.abc import Sequence

from parley.permissions.shell.arguments import Program, parse_arguments

CD = Program(short="LPe@", max_operands=1, globs="nowhere")
CD_COMMANDS = frozenset(["cd", "pushd", "popd"])
IN_SHELL = frozenset(["time", "command", "builtin"])
"""Wrappers after which `cd` is still the builtin; after others it would be a program without effect."""


def find_cd_target(argv: Sequence[str], home: str | None) -> str | None:
    """The folder as written, or the home folder if there is no argument; None if it is not known."""
    found = parse_arguments(CD, argv) if argv[0] == "cd" else None
    if found is None:
        return None
    destination = argv[found.operands[0]] if found.operands else home
    return None if destination == "-" or destination is None or destination[:1] == "+" else destination
