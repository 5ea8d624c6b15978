"""One page about the newest official releases: which declared names are undecided, which checks and programs fail.

outcomes = read_outcomes(Path("junit.xml"))     of a run of `tests/compat`
text = render_drift(versions, problems, outcomes)
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM_TESTS = ("test_doc_blocks", "test_fake_engines", "test_ported")
"""Modules of `tests/compat` that run whole programs; each test of the others is a check."""
MAX_REASON_CHARS = 300


@dataclass(frozen=True)
class Outcome:
    """What came of one test."""

    module: str
    name: str
    failure: str | None
    """Why it failed; None if it passed or was skipped."""

    @property
    def is_program(self) -> bool:
        return self.module in PROGRAM_TESTS


def read_outcomes(path: Path) -> list[Outcome]:
    """Read the report that pytest writes with `--junit-xml`. Raises OSError or ParseError."""
    return [
        Outcome(
            module=(case.get("classname") or "").rpartition(".")[2],
            name=case.get("name") or "",
            failure=next((one.get("message") or one.tag for one in case if one.tag in ("failure", "error")), None),
        )
        for case in ET.parse(path).iter("testcase")
    ]


def render_drift(versions: str, problems: Sequence[str], outcomes: Iterable[Outcome]) -> str:
    """The page in Markdown. It has the same three parts whether or not something fails."""
    every = list(outcomes)
    parts = [f"# Drift: {versions}", render_part("Declared names", [f"- {problem}" for problem in problems], "open")]
    for title, found in (
        ("Checks", [one for one in every if not one.is_program]),
        ("Programs", [one for one in every if one.is_program]),
    ):
        lines = [f"- `{one.module}.py::{one.name}`: {shorten(one.failure)}" for one in found if one.failure is not None]
        parts.append(render_part(title, lines, f"of {len(found)} fail"))
    return "\n\n".join(parts) + "\n"


def render_part(title: str, lines: Sequence[str], what: str) -> str:
    return "\n".join([f"## {title}: {len(lines)} {what}", *(["", *lines] if lines else [])])


def shorten(reason: str) -> str:
    """The reason in one line."""
    text = " ".join(reason.split())
    return text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}..."
