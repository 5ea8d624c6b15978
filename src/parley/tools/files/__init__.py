"""Tools that read and change files."""
