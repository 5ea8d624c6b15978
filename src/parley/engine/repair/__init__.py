"""Repairs tool calls that models get wrong, for every backend: JSON, names, arguments, and calls written as text."""
