"""From options to a ready session: the only package that knows the implementations."""
