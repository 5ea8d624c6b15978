"""Stores that keep a session's log in files."""
