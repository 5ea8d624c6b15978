"""The agent engine: sessions, turns, tool calls and everything they need. The map is in README.md."""
