"""Finding files by path and by content."""
