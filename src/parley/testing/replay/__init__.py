"""Replay one side of a recorded conversation, and compare the other side with the recording."""
