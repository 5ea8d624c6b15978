"""What the log of a session contains: records, how they are written, and the state that follows from them."""
