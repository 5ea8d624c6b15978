"""The interface of model calls for tools. The engine implements it in engine/side/query.py."""

from __future__ import annotations

from typing import Protocol

from parley.protocol.base import Json


class ModelQueries(Protocol):
    """Questions to models outside the conversation. Both raise ModelError."""

    async def ask_small(self, prompt: str) -> str:
        """The answer of the small model."""

    async def consult(self, prompt: str, tools: list[Json]) -> list[Json]:
        """The blocks of an answer of the session's model, which can use these tools of its backend.

        Raises ModelError also if the backend has no such tools."""
