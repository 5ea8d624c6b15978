"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
DATA = TESTS / "data"
GOLDEN = TESTS / "golden"
TRANSCRIPTS = TESTS / "transcripts"
MCP_SERVERS = TESTS / "helpers" / "mcp_servers"
MYPY_CACHE = ROOT / ".mypy_cache" / "programs"
"""For tests that check programs outside the project: most of the time goes to our own modules."""
