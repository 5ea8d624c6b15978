"""What a git command would run, read or print in the repository it finds."""
