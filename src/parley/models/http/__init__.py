"""Streamed HTTP calls, server-sent events and timeouts, shared by the backends."""
