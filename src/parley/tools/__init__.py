"""The built-in tools, the interface they implement, and the registry of a session."""
