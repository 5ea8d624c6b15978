"""Ends whose lines have their keys in any order: a dialect of a package for engines, and text for clients.

with shuffled_engines(folder) as environment: ...       engines in this process, and in others with this environment
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from parley import entry_points
from parley.protocol.base import Message
from parley.protocol.dialects.base import DialectContext, StreamJson
from parley.protocol.messages.conversation import StreamEvent
from tests.helpers import paths
from tests.helpers.golden import write_otherwise

NAME = "shuffled"
FOLDER = "shuffled-1.0.dist-info"


class Shuffled(StreamJson):
    """`--dialect shuffled`: stream-json with other white space and the keys of each line in another order."""

    name = NAME

    def __init__(self, context: DialectContext | None = None) -> None:
        super().__init__(context)
        self._draw = Random(1)

    def encode(self, message: Message) -> list[bytes]:
        return [write_otherwise(json.loads(line), self._draw) for line in super().encode(message)]

    def encode_events(self, events: Sequence[StreamEvent]) -> bytes:
        return b"".join(line + b"\n" for event in events for line in self.encode(event))


@contextmanager
def shuffled_engines(folder: Path) -> Iterator[dict[str, str]]:
    """Install the dialect, for this process and for those with the variables."""
    package = folder / "package" / FOLDER
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: shuffled\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[parley.dialects]\n{NAME} = {__name__}:Shuffled\n")
    place = str(package.parent)
    sys.path.append(place)
    forget_extensions()
    try:
        yield {"PYTHONPATH": os.pathsep.join((place, str(paths.ROOT)))}
    finally:
        sys.path.remove(place)
        forget_extensions()


def forget_extensions() -> None:
    entry_points.discover.cache_clear()
    entry_points.has_extensions.cache_clear()
