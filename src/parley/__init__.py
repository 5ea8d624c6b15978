"""Parley: an open engine and SDK for the agent wire protocol of the Claude Code CLI and its SDKs."""

from parley.version import __version__

__all__ = ["__version__"]
