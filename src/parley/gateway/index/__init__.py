"""What is derived from the lines of sessions: summaries, the search index, and the figures of turns."""
