"""What all tests share: the folders of helpers are importable by name, and no example has a deadline."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "engine"))
sys.path.append(str(HERE / "programmes"))

# How long an example takes says nothing about what it shows: machines have other work to do.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pass_default_signals_to_children() -> None:
    """Start engines as from a terminal, also when the tests were started by `make check &` or `nohup`.

    An ignored signal stays ignored across exec, and an engine respects that. A signal with a handler becomes default
    again across exec: a handler that does nothing keeps the signal away from pytest, but not from its children.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


pass_default_signals_to_children()
