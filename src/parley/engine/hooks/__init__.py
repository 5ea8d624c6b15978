"""Run hooks at the events of a session, and apply their answers."""
