"""The session that a terminal shows: `launch` says which and makes its client, `session` follows it, `history` reads
its past."""
