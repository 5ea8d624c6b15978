"""Background tasks: commands and subagents that outlive the call that started them."""
