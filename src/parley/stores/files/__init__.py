"""Stores that keep each session's log in a file of JSON lines."""
