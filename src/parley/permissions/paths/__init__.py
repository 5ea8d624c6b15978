"""Paths in permission decisions: symlinks, protected files, programs on PATH."""
