"""The messages by theme. Importing this package registers them all."""

from parley.protocol.messages import control, conversation, dialects, notices, requests, result, system

__all__ = ["control", "conversation", "dialects", "notices", "requests", "result", "system"]
