"""The one conversation that a database of `--stdio` holds: found without opening it, and without much to load."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.compose.registry import OVER_STDIO, STORES, dialect_name, load
from parley.protocol.options import CliOptions
from parley.stores.files.entry_codec import EntryContext


def resolve_session(options: CliOptions, cwd: str, new_id: Callable[[], str]) -> CliOptions:
    """The options with the session they mean, where they name none. Raises SessionError."""
    named = options.session_id or options.resume or options.continue_conversation or options.no_session_persistence
    if dialect_name(options) not in OVER_STDIO or not options.database or named:
        return options
    path = Path(cwd, os.path.expanduser(options.database))
    store: Any = load(STORES, "sqlite", "store")(path, EntryContext(cwd=cwd, version=""))
    session_id = store.conversation(new_id)
    return options.replace(resume=session_id) if store.exists(session_id) else options.replace(session_id=session_id)
