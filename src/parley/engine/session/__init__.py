"""One live session: its configuration, prompt queue, journal and the pump between it and the client."""
