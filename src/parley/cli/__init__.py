"""The `parley` executable. `main.py` is the entry point; `commands/` has the subcommands."""
