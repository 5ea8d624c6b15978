"""The messages, one family a file. Importing this package fills the catalogue."""

from parley.protocol.messages import control, conversation, dialects, notices, requests, result, system

__all__ = ["control", "conversation", "dialects", "notices", "requests", "result", "system"]
