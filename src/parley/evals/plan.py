"""Which runs a suite consists of: every case with every configuration, several times."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from parley.errors import UsageError
from parley.evals.suite import EvalCase, EvalConfiguration, EvalSuite
from parley.protocol.base import Struct
from parley.sdk.spelling import hint

SLUG_CHARS = 60

RunKey = tuple[str, str, int]
"""The names of the case and the configuration, and the number of the run."""


class PlannedRun(Struct, frozen=True, kw_only=True):
    """One session: a case, a configuration, and the number of the run, from 1."""

    case: EvalCase
    configuration: EvalConfiguration
    number: int

    @property
    def key(self) -> RunKey:
        return self.case.name, self.configuration.name or "", self.number

    @property
    def file_name(self) -> str:
        """The start of the names of its files. Different runs have different names."""
        case, configuration, number = self.key
        digest = hashlib.sha256(f"{case}\0{configuration}".encode()).hexdigest()[:6]
        return f"{slug(case)}.{slug(configuration)}.{digest}.{number}"

    def __str__(self) -> str:
        return "{} [{}] run {}".format(*self.key)


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:SLUG_CHARS] or "x"


def plan_runs(
    suite: EvalSuite, *, runs: int | None = None, cases: Sequence[str] = (), configurations: Sequence[str] = ()
) -> list[PlannedRun]:
    """All first runs, then all second runs, and so on. `cases` and `configurations` select names by pattern.

    Raises UsageError if a pattern matches nothing.
    """
    chosen_cases = select(suite.case, cases, "case")
    chosen_configurations = select(suite.configuration, configurations, "configuration")
    return [
        PlannedRun(case=case, configuration=configuration, number=number)
        for number in range(1, (runs or suite.runs) + 1)
        for case in chosen_cases
        for configuration in chosen_configurations
    ]


def select(rows: Iterable[EvalCase | EvalConfiguration], patterns: Sequence[str], what: str) -> list:  # type: ignore[type-arg]  # of the same type
    named = {row.name or "": row for row in rows}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UsageError(f"no {what} matches {pattern!r}{hint(pattern, named)} (choose from {', '.join(named)})")
    return [
        row for name, row in named.items() if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def digest_suite(suite: EvalSuite) -> str:
    """Changes with everything that a result depends on, but not with the number of runs or the budget."""
    parts = (suite.case, suite.configuration, suite.judge)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]
