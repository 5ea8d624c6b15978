"""Plays a talk: a conversation in a file.

    # a comment
    cwd    /home/me/project                     the working directory, which is replaced by that of the test
    option include_partial_messages true        an option of the session
    file   notes.txt Some text                  a file in the working directory
    model  [[turn]] …                           the model's script, TOML or JSON, one line or several
    >  {...}                                    the host says this line
    <  {...}                                    the engine says a line with these fields, next or later

A `>` line goes out when everything above it has been heard. `<` lines must come in their
order; "…" stands for any value, and "$name" for any value that later `>` lines may repeat.
The engine may say more in between, but never more results than the conversation shows.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.helpers.session import SessionHarness, kind_of


async def play(text: str, folder: Path) -> None:
    if found := re.search(r"^cwd (.+)$", text, re.MULTILINE):
        text = text.replace(found[1], str(folder))
    words = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    script = "\n".join(rest for word, rest in words if word == "model")
    options = dict(rest.split(None, 1) for word, rest in words if word == "option")
    for name, said in (rest.split(None, 1) for word, rest in words if word == "file"):
        (folder / name).write_text(said + "\n")
    async with SessionHarness(
        folder, script, **{name: json.loads(value) for name, value in options.items()}
    ) as harness:
        known: dict[str, str] = {}
        for word, rest in words:
            if word == ">":
                for name, value in known.items():
                    rest = rest.replace(name, value)  # noqa: PLW2901  # the line with its names filled in
                harness.send(rest.encode())
            elif word == "<":
                pattern = json.loads(rest)
                try:
                    await harness.receive_until(lambda line, pattern=pattern: fits(line, pattern, known))
                except TimeoutError:
                    raise AssertionError(f"never said: {rest}\nsaid: {harness.raw.decode()}") from None
    shown = sum(word == "<" and kind_of(json.loads(rest)) == "result" for word, rest in words)
    assert len(list(harness.messages("result"))) == shown


def fits(line: Any, pattern: Any, known: dict[str, str]) -> bool:
    """Whether a value has all that the pattern names; values for `$name` are noted."""
    if pattern == "…":
        return True
    if isinstance(pattern, str) and pattern.startswith("$"):
        known[pattern] = line
        return True
    if isinstance(pattern, dict):
        return isinstance(line, dict) and all(
            key in line and fits(line[key], value, known) for key, value in pattern.items()
        )
    if isinstance(pattern, list):
        same_length = isinstance(line, list) and len(line) == len(pattern)
        return same_length and all(fits(one, other, known) for one, other in zip(line, pattern, strict=True))
    return bool(line == pattern)
