"""The subcommands of `parley`.

`catalog` declares them, `subcommand` parses their words and finds the function that runs an action. The other modules
have these functions: each takes a `GivenArgs` and returns the exit code.
"""
