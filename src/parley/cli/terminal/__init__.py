"""The view of a one-shot run for a person at a terminal: `parley "prompt"` with stdout a terminal.

`run.run_terminal` runs it. `host.TerminalHost` is the session's client: it sees what an SDK client sees, and shows it
on a `screen.Screen`. Nothing here is imported for `--print`, piped output or stream-json.
"""
