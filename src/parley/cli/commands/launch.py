"""The settings of this directory, for commands that need no session."""

from __future__ import annotations

import os

from parley.cli.stdio import warn
from parley.compose.launch_context import LaunchContext, working_directory
from parley.protocol.options import CliOptions


def open_launch() -> LaunchContext:
    """What a session here would start from. Raises UsageError."""
    launch = LaunchContext(CliOptions(), dict(os.environ), working_directory())
    launch.warn = warn
    return launch
