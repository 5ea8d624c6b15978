"""The user's machine as tools see it: files, processes, search, network, worktrees."""
