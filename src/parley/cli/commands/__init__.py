"""The subcommands of `parley`: one module each, whose `main(argv)` returns the exit code."""
