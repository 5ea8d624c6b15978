"""A fake engine that plays a scenario file: `parley fake`, and `ScenarioWire` for tests in one process."""
