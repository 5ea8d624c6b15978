"""Subagents: their definitions, setup, runs, forwarding and worktrees."""
