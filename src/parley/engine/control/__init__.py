"""Control requests of the client: dispatched while turns run, each answered exactly once."""
