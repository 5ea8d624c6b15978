"""The subcommands of `parley`."""
