"""Compaction and background work for sessions with a long-term memory."""
