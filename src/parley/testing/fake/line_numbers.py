"""The lines of turns and steps in a scenario file, for error messages: the TOML reader does not report them."""

from __future__ import annotations

import re
from collections.abc import Iterator


class LineFinder:
    """Where the turns and steps of a TOML text are. The text must be valid TOML."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._turns: list[int] = []
        self._steps: dict[str, list[int]] = {}
        for line, token in tokens(text):
            self._take(line, token)

    def turn(self, at: int) -> int:
        """The line of a turn, from 1."""
        return self._turns[at] if at < len(self._turns) else 1

    def step(self, where: str, at: int) -> int:
        """The line of a step of `start` or `turn[N].steps`."""
        found = self._steps.get(where, [])
        return found[at] if at < len(found) else self.turn(int(m[1]) if (m := re.match(r"turn\[(\d+)", where)) else 0)

    def key(self, key: str, after: int) -> int:
        """The line at or after a line that has this key; that line if there is none."""
        pattern = re.compile(rf"(?:^|[\s{{,.\[\"']){re.escape(key)}[\"']?\s*[=.\]]")
        later = range(after - 1, len(self._lines))
        return next((at + 1 for at in later if pattern.search(self._lines[at])), after)

    def _take(self, line: int, token: str) -> None:
        if token == "[[turn]]":
            self._turns.append(line)
            return
        where = f"turn[{len(self._turns) - 1}].steps" if token.startswith("turn.") else token.partition("+")[0]
        self._steps.setdefault(where, []).append(line)


def tokens(text: str) -> Iterator[tuple[int, str]]:
    """`[[turn]]`, and `turn.steps` or `start` for each step, with their lines."""
    line, depth, listed, in_turn = 1, 0, "", False
    pattern = re.compile(
        r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'
        r"|^[ \t]*\[\[?[^\]\n]*\]\]?|^[ \t]*(?:steps|start)[ \t]*=[ \t]*\[|[\[\]{}\n]",
        re.DOTALL | re.MULTILINE,
    )
    for found in pattern.finditer(text):
        token = found[0].strip(" \t")
        if depth == 0 and token.startswith("[") and found[0] != "\n":
            name = token.strip("[] \t").replace(" ", "")
            in_turn = name == "turn" or name.startswith("turn.")
            if token == "[[turn]]" or name == "turn":
                yield line, "[[turn]]"
            elif name in ("turn.steps", "start") and token.startswith("[["):
                yield line, name
        elif token.startswith(("steps", "start")) and depth == 0:
            depth, listed = 1, "turn.steps" if in_turn else "start"
        elif token in ("[", "{"):
            if token == "{" and depth == 1 and listed:
                yield line, listed
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
            listed = listed if depth else ""
        line += found[0].count("\n")
