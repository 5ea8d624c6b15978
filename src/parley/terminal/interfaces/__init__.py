"""The forms of a terminal: `live` with keys and live lines, `plain` line by line.

A run of one prompt and a conversation share `screen`, which draws live lines, `keyboard` and `dialogs`. Only
`live` and `keys` need the extra `tui`.
"""
