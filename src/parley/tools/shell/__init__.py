"""Tools that run commands, and the tasks they leave running."""
