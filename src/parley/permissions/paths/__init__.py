"""Paths in permission decisions: patterns, symlinks, protected files, programs on PATH."""
