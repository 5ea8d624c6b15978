"""Tools that move the session into a git worktree and back: EnterWorktree and ExitWorktree."""
