"""The session's access to its models: opening, tracing, thinking budgets."""
