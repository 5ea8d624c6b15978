"""Commands that serve sessions to others, and that use sessions of a server."""
