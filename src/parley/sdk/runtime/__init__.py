"""The client's side of a running connection."""
