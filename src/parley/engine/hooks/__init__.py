"""Running hooks at the events of a session, and applying what they answer."""
