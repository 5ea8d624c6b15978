"""What a person at a terminal gets: `run` shows a run of one prompt, `conversation` opens the interactive terminal.

`run.TerminalHost` is the client of the session of one prompt: it sees what an SDK client sees, and shows it on a
`screen.Screen`, as `parley/terminal` does in a conversation. Nothing here is imported for `--print`, piped output or
stream-json.
"""
