"""The one session that a database of `--stdio` holds, found without opening it.

A client may ask for the status before its first prompt, and the answer names the session. So this module imports
nothing of the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from parley.compose.registry import get_profile
from parley.protocol.options import CliOptions
from parley.stores.files.entry_codec import EntryContext


def resolve_session(options: CliOptions, cwd: str, new_id: Callable[[], str]) -> CliOptions:
    """The options with the id of the session, if they name none. Raises SessionError."""
    named = options.session_id or options.resume or options.continue_conversation or options.no_session_persistence
    if not options.database or named or not get_profile(options).over_stdio:
        return options
    from parley.stores.sql.sqlite import SqliteStore

    path = Path(cwd, os.path.expanduser(options.database))
    store = SqliteStore(path, EntryContext(cwd=cwd, version=""))
    session_id = store.conversation(new_id)
    return options.replace(resume=session_id) if store.exists(session_id) else options.replace(session_id=session_id)
