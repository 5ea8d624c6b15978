"""Token usage, cost and budgets."""
