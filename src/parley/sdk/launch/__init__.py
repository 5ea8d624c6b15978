"""Start an engine, as a subprocess or in this process."""
