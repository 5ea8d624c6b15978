"""Proof that a command only reads: tables of programs and flags, and checks for those that need more."""
