"""Hooks: what they are told, what they may answer, and how answers are merged."""
