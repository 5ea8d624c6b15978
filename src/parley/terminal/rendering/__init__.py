"""How messages look as lines on a terminal: safe text, Markdown, tool calls, diffs. No I/O.

`text` makes text safe, measures and aligns it, `style` colours it. `transcript` shows a conversation with
`markdown` for answers, `calls` for tool calls and `details` for what they changed. `requests` shows permission
requests.
"""
