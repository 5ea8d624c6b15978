"""What a command can do after it was allowed: file system, network and system calls."""
