"""The lines between the gateway and an engine, in both directions, stream events included."""
