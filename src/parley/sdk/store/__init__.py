"""A program's own session store."""
