"""Proof that a command only reads."""
