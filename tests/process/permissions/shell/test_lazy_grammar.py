"""The tree-sitter library is loaded only when it is needed."""

from __future__ import annotations

import subprocess
import sys


def test_judging_a_proven_command_does_not_load_the_grammar() -> None:
    program = (
        "import sys\n"
        "from parley.permissions.shell.command_rules import is_allowed_by\n"
        "from parley.permissions.shell.deny_search import find_denied\n"
        "from parley.permissions.shell.strict_parser import CommandLine, parse_strict\n"
        "line = parse_strict('git status && npm test')\n"
        "assert isinstance(line, CommandLine) and is_allowed_by(line, ['npm test'])\n"
        "assert not find_denied(line.text, ['rm:*'])\n"
        "assert not [name for name in sys.modules if name.startswith('tree_sitter')]"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
