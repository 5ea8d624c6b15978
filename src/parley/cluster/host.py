"""A host: the gateway's hub without a listener. It owns shards and runs their sessions.

    host = Host(cluster, settings, log)
    host.app            the ASGI application of the hub; requests get to it over the bus
    host.sessions       loads sessions, see `host_sessions.py`
    NEW_SESSION_ID      set it around a request that creates a session: the id that the gateway has chosen
"""

from __future__ import annotations

from contextvars import ContextVar

NEW_SESSION_ID: ContextVar[str] = ContextVar("new_session_id", default="")
"""The id of the session that the current request creates. Its shard is the one that the request was sent to."""
