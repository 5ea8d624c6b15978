"""Paths in permission decisions: patterns, links, protected names."""
