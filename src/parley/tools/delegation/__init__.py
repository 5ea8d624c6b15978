"""Tools that hand work to subagents and skills."""
