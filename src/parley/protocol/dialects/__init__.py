"""The dialects of the protocol: other ways to write the same messages."""
