"""Programs for the official SDK, and the scripts of their models."""
