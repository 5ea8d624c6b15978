"""The interactive terminal: `parley` at a terminal without `--print`. Needs the extra `tui`, or prints line by line.

`application.run_conversation` runs it. It is a client of `parley.Client`, so it sees what every SDK client sees, and
its session may be in a process of its own or on a gateway. Nothing here is imported for `--print` or stream-json.

See also: `interfaces/` for the screen and the keys, `session` for the session and its client, `prompts` for what goes
into a prompt; `questions` for requests of the engine and `rendering/` for text, Markdown and tool calls as lines, which
a run of one prompt shares; `commands/` for the slash commands that the terminal answers itself; `base` for what these
may use.
"""
