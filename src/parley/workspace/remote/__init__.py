"""A workspace on another machine: its server beside the files, and the engine's side of it."""
