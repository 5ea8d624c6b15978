"""Byte streams between the engine and its client: stdio and in memory."""
