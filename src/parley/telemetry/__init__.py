"""Who watches what a session does, and where that is told."""
