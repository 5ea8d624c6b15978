"""The golden lines: a sample of everything that can be said, recorded where a recording exists.

A file of tests/golden holds one `{"name": ..., "line": ...}` a line: `catalogue` has every message
and request, `seeds` the examples of the source documents, `blocks` and `events` what comes bare there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.helpers import paths

FOLDER = paths.GOLDEN


class Sample(NamedTuple):
    name: str
    json: dict[str, Any]

    @property
    def line(self) -> bytes:
        return json.dumps(self.json, ensure_ascii=False).encode()


def load(name: str) -> list[Sample]:
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return [Sample(row["name"], row["line"]) for row in map(json.loads, text.splitlines())]


CATALOGUE, SEEDS, BLOCKS, EVENTS = map(load, ("catalogue", "seeds", "blocks", "events"))
LINES = CATALOGUE + SEEDS


def each(samples: list[Sample]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each sample, under the sample's name."""
    return pytest.mark.parametrize("sample", samples, ids=[sample.name for sample in samples])


def canonical(value: Any) -> str:
    """A JSON value as text: equal texts are equal values, and 5 is not 5.0."""
    return json.dumps(value, sort_keys=True)


def shuffle(value: Any, draw: random.Random) -> Any:
    """A JSON value with the keys of all its objects in another order."""
    if isinstance(value, dict):
        keys = list(value)
        draw.shuffle(keys)
        return {key: shuffle(value[key], draw) for key in keys}
    return [shuffle(item, draw) for item in value] if isinstance(value, list) else value


def write_otherwise(value: Any, draw: random.Random) -> bytes:
    """The same JSON value with other white space and with its keys in another order."""
    space = draw.choice(["", " ", "\t", "  "])
    separators = (f"{space},{space}", f"{space}:{space}")
    return json.dumps(shuffle(value, draw), ensure_ascii=draw.random() < 0.5, separators=separators).encode()
