"""The wire protocol. Pure: no I/O, clock, randomness, logging or environment."""
