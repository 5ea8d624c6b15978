"""Models that need no network: scripted and offline."""
