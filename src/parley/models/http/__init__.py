"""Streamed HTTP calls and server-sent events."""
