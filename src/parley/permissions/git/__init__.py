"""Git in permission decisions: what a command runs, reads or prints in the repository it finds."""
