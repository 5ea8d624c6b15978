"""The one conversation that a database of `--stdio` holds: found without opening it, and without much to load."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.compose.registry import OVER_STDIO, STORES, dialect_name, variety
from parley.protocol.options import Options
from parley.stores.files.entry_codec import Context


def with_conversation(options: Options, cwd: str, new_id: Callable[[], str]) -> Options:
    """The options with the session they mean, where they name none. Raises SessionError."""
    named = options.session_id or options.resume or options.continue_conversation or options.no_session_persistence
    if dialect_name(options) not in OVER_STDIO or not options.database or named:
        return options
    path = Path(cwd, os.path.expanduser(options.database))
    store: Any = variety(STORES, "sqlite", "store")(path, Context(cwd=cwd, version=""))
    session_id = store.conversation(new_id)
    return options.but(resume=session_id) if store.exists(session_id) else options.but(session_id=session_id)
