"""Assignments before a command that only change how it prints.

Any other variable could choose the program that runs (PATH), its code (LD_PRELOAD, NODE_OPTIONS) or its servers
(GIT_SSH_COMMAND, HTTP_PROXY). The values are restricted as well.
"""

from __future__ import annotations

import re

from parley.permissions.shell.strict_parser import SimpleCommand

WORD = re.compile(r"[A-Za-z0-9_.@-]*")
ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
SWITCH = re.compile(r"[01]?|true|false|yes|no")
NUMBER = re.compile(r"\d{0,6}")
PLAIN_PAGER = re.compile(r"cat|")

SAFE = {
    "LANG": WORD, "LC_ALL": WORD, "LC_CTYPE": WORD, "LC_COLLATE": WORD, "LC_MESSAGES": WORD, "LC_NUMERIC": WORD,
    "LC_TIME": WORD, "TERM": WORD, "NODE_ENV": WORD, "RAILS_ENV": WORD, "GOOS": WORD, "GOARCH": WORD,
    "TZ": ZONE,
    "CI": SWITCH, "NO_COLOR": SWITCH, "FORCE_COLOR": NUMBER, "CLICOLOR": SWITCH, "CLICOLOR_FORCE": SWITCH,
    "PYTHONUNBUFFERED": SWITCH, "PYTHONDONTWRITEBYTECODE": SWITCH, "PYTHONUTF8": SWITCH, "RUST_BACKTRACE": WORD,
    "COLUMNS": NUMBER, "LINES": NUMBER, "GIT_OPTIONAL_LOCKS": SWITCH, "GIT_TERMINAL_PROMPT": SWITCH,
    "PAGER": PLAIN_PAGER, "GIT_PAGER": PLAIN_PAGER, "MANPAGER": PLAIN_PAGER,
}  # fmt: skip


def are_safe(command: SimpleCommand) -> bool:
    return all(name in SAFE and SAFE[name].fullmatch(value) is not None for name, value in command.assignments)
