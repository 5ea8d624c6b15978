"""Open a conversation at the terminal: with a session of this machine, or with one of a gateway."""

from __future__ import annotations

import os

from parley.cli.process_secrets import erase
from parley.errors import UsageError
from parley.protocol.options import CliOptions


def start_conversation(options: CliOptions) -> int:
    """Hold a conversation in the session that the options name; returns the exit code. Raises UsageError."""
    from parley.terminal.application import run_conversation
    from parley.terminal.launch import choose_target

    erase()
    try:
        cwd = os.getcwd()
    except OSError:
        raise UsageError("the working directory no longer exists") from None
    return run_conversation(choose_target(options, cwd), is_plain=options.screen_reader)
