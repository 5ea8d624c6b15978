"""Recording model calls to a file, and replaying them."""
