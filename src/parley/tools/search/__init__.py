"""Tools that search files."""
