"""What is said on the wire. Pure: no I/O, clock, randomness, logging or environment anywhere below."""
