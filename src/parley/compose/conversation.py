"""The one conversation that a database of `--stdio` holds: found without opening it, and without much to load."""

from __future__ import annotations

import os
from pathlib import Path

from parley.compose.rows import OVER_STDIO, STORES, dialect_name, variety
from parley.protocol.options import Options
from parley.stores.base import Store
from parley.stores.line import Context


def conversation(options: Options, cwd: str) -> str | None:
    """Its id; None if there is none yet, or the options name a session themselves. Raises SessionError."""
    named = options.session_id or options.resume or options.continue_conversation or options.no_session_persistence
    if dialect_name(options) not in OVER_STDIO or not options.database or named:
        return None
    path = Path(cwd, os.path.expanduser(options.database))
    store: Store = variety(STORES, "sqlite", "store")(path, Context(cwd=cwd, version="", entrypoint=""))
    return next((found.id for found in store.list(limit=1)), None)
