"""A fake engine that plays a scenario file: `parley fake`, and `scenario_wire` for tests in one process."""
