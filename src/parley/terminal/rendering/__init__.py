"""How messages look as lines on a terminal: safe text, Markdown, tool calls, diffs. No I/O.

`text` makes text safe and measures it, `style` and `themes` colour it, `blocks` and `markdown` format answers while
they arrive, `calls` describes tool calls.
"""
