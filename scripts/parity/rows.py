"""Our rows: what Parley does with each declared name. One TOML file per section, one line per name, sorted.

    "Bash.command" = { works = "process/tools/test_bash.py::test_a_command_runs" }
    "--plugin-url" = { refused = "--plugin-url is not supported" }
    "--chrome" = { not-ours = "the vendor's browser extension" }
    "sandbox.enabled" = { silent = "nothing is sandboxed" }
    "system/hook_started" = { works = "...", fields = "hook_id hook_name" }

`works` names the tests that prove it, separated by spaces, below `tests/`. `refused` quotes what the user reads,
`not-ours` gives the reason, and `silent` says what is lost: a defect, with which the test fails. `fields` are further
names with the same status: `system/hook_started.hook_id` and so on. A field may have a line of its own instead.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

STATUSES = ("works", "refused", "not-ours", "silent")
ROWS = Path(__file__).with_name("rows")
TESTS = Path(__file__).parents[2] / "tests"


@dataclass(frozen=True)
class Row:
    name: str
    status: str
    detail: str
    fields: tuple[str, ...] = ()

    def names(self) -> Iterator[str]:
        yield self.name
        yield from (f"{self.name}.{field}" for field in self.fields)


@dataclass(frozen=True)
class Table:
    """The rows of a section, and what is wrong with the file."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...]

    def by_name(self) -> dict[str, Row]:
        return {name: row for row in self.rows for name in row.names()}


def load(key: str, folder: Path = ROWS) -> Table:
    path = folder / f"{key}.toml"
    problems: list[str] = []
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Table((), (f"{path.name} does not exist",))
    except tomllib.TOMLDecodeError as exc:
        return Table((), (f"{path.name}: {exc}",))
    rows = tuple(row for name, value in content.items() if (row := parse(name, value, problems)) is not None)
    if [row.name for row in rows] != sorted(row.name for row in rows):
        wrong = next(row.name for row, after in pairwise(rows) if row.name > after.name)
        problems.append(f"{wrong!r} is not in its place: the lines must be sorted by name")
    names = [name for row in rows for name in row.names()]
    problems += [f"{name!r} has two rows" for name in dict.fromkeys(names) if names.count(name) > 1]
    return Table(rows, tuple(problems))


def parse(name: str, value: object, problems: list[str]) -> Row | None:
    """One row, or None and a problem."""
    given = dict(value) if isinstance(value, dict) else {}
    fields = given.pop("fields", "")
    if len(given) != 1 or not given.keys() <= set(STATUSES) or not all(isinstance(v, str) for v in given.values()):
        problems.append(f"{name!r} needs exactly one of {', '.join(STATUSES)}, with a text")
        return None
    ((status, detail),) = given.items()
    if not detail.strip():
        problems.append(f"{name!r} says {status} without {'a test' if status == 'works' else 'a text'}")
    if status == "works":
        problems += [f"{name!r}: {problem}" for test in detail.split() if (problem := check_test(test))]
    return Row(name, status, detail, tuple(str(fields).split()))


def check_test(test: str) -> str | None:
    """Why `path::name` is not a test, or None."""
    path, _, name = test.partition("::")
    if not name:
        return f"{test!r} is not PATH::TEST"
    found = tests_in(path)
    if found is None:
        return f"there is no file tests/{path}"
    return None if name in found else f"tests/{path} has no test {name}"


@cache
def tests_in(path: str) -> frozenset[str] | None:
    file = TESTS / path
    if not file.is_file():
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))
