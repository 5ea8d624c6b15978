"""Messages, content blocks and the shapes of plain dictionaries."""
