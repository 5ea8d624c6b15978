"""The prompts that were sent from terminals, which the next terminal offers again.

The file is `parley/history.jsonl` in the configuration folder (`~/.claude`, or CLAUDE_CONFIG_DIR). Only its owner can
read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

MAX_PROMPTS = 1_000
"""How many prompts of the history are loaded."""
READ_BYTES = 1_000_000


def find_folder(environment: Mapping[str, str]) -> Path:
    """Where the files are."""
    given = environment.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else Path.home() / ".claude") / "parley"


class PromptLog:
    """The prompts that were sent, oldest first in the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "history.jsonl"

    def read(self) -> list[str]:
        """The last prompts, newest first, each once."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return []
        prompts: dict[str, None] = {}
        for line in reversed(lines):
            try:
                entry = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(entry, dict) and isinstance(entry.get("text"), str):
                prompts.setdefault(entry["text"])
        return list(prompts)[:MAX_PROMPTS]

    def append(self, text: str) -> None:
        from parley.workspace.private_files import open_file

        try:
            with os.fdopen(open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "wb") as file:
                file.write(msgspec.json.encode({"text": text}) + b"\n")
        except OSError:
            return  # a prompt that cannot be remembered is sent all the same
