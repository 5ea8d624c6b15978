"""Waiting for MCP servers until each is there or not, for a time, or until somebody is in a hurry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.mcp.server import Server


async def settled(servers: list[Server], hurry: asyncio.Event, seconds: float | None) -> None:
    """Every wait ends: a server is known to be there or not within its own limits."""
    waits = [asyncio.ensure_future(server.settled.wait()) for server in servers]
    if not waits:
        return
    everything: asyncio.Future[Any] = asyncio.gather(*waits)
    hurried: asyncio.Future[Any] = asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait({everything, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        everything.cancel()
        hurried.cancel()
        await asyncio.gather(everything, hurried, return_exceptions=True)
