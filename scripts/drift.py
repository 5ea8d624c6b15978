"""Compare what the official packages declare with what Parley does.

    python scripts/drift.py                 fail if a name has no row, or a row is wrong
    python scripts/drift.py --newest        the same with the newest releases
    python scripts/drift.py --newest --run [arguments of pytest]
                                            also run tests/compat with them; print one page (build/drift.md)
    python scripts/drift.py --missing       print rows for the names that have none

The packages are those of the compatibility tests (`tests/compat/install.py`), installed into `.compat/` if needed.
The rows are in `scripts/parity/rows/`; `scripts/parity/rows.py` describes them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from parity import rows
from parity.declared import SECTIONS, Declarations, DriftError, load
from parity.drift_page import read_outcomes, render_drift
from parity.rows import Table

ROOT = Path(__file__).parent.parent
DRIFT_PAGE = ROOT / "build" / "drift.md"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 1 for drift, 2 if the packages cannot be read."""
    parser = argparse.ArgumentParser(description="Compare what the official packages declare with what Parley does.")
    parser.add_argument("--newest", action="store_true", help="the newest releases instead of the pinned ones")
    parser.add_argument("--missing", action="store_true", help="print rows for the names that have none")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="run the compatibility tests, with these arguments")
    given = parser.parse_args(arguments)
    try:
        declarations = load_installed(newest=given.newest)
        tables = load_tables()
        if given.missing:
            sys.stdout.writelines(f"{line}\n" for line in missing_rows(declarations, tables))
            return 0
        problems = list(find_problems(declarations, tables))
    except DriftError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    if given.run is not None:
        return run_compat(declarations.versions, problems, given.run)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    sys.stdout.write(summarize(declarations, tables, len(problems)))
    return 1 if problems else 0


def run_compat(versions: str, problems: Sequence[str], arguments: Sequence[str]) -> int:
    """Run the compatibility tests with the same releases, and write the page. Returns the exit code."""
    DRIFT_PAGE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        # The names are on the page already.
        words = [f"--junit-xml={report}", "--ignore=tests/compat/test_drift.py", "tests/compat", *arguments]
        environment = {**os.environ, "PARLEY_REQUIRE_COMPAT": "1"}
        done = subprocess.run([sys.executable, "-m", "tests.run", *words], cwd=ROOT, env=environment, check=False)
        try:
            outcomes = read_outcomes(report)
        except (OSError, ElementTree.ParseError) as exc:
            sys.stderr.write(f"the tests left no report: {exc}\n")
            return 2
    page = render_drift(versions, problems, outcomes)
    DRIFT_PAGE.write_text(page, encoding="utf-8")
    sys.stdout.write(page)
    return 1 if problems or done.returncode else 0


def load_installed(*, newest: bool = False) -> Declarations:
    """The declarations of the packages in `.compat/`; they are installed if needed. Raises DriftError."""
    if newest:
        os.environ["PARLEY_NEWEST_CLIENTS"] = "1"
    sys.path.insert(0, str(ROOT))
    try:
        from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT, Unavailable, ensure
    finally:
        sys.path.remove(str(ROOT))
    try:
        for client in (CURRENT_PYTHON, TYPESCRIPT):
            ensure(client, lambda text: None)
    except Unavailable as exc:
        raise DriftError(f"cannot install the official packages: {exc}") from exc
    (package,) = CURRENT_PYTHON.place.glob("lib/python*/site-packages/claude_agent_sdk")
    versions = " and ".join(f"`{client.package}` {client.version}" for client in (CURRENT_PYTHON, TYPESCRIPT))
    return load(package, TYPESCRIPT.place / "node_modules" / TYPESCRIPT.package, versions)


def load_tables(folder: Path = rows.ROWS) -> dict[str, Table]:
    return {section.key: rows.load(section.key, folder) for section in SECTIONS}


def find_problems(declarations: Declarations, tables: Mapping[str, Table]) -> Iterator[str]:
    """Names without a row, rows without a name, rows that are wrong in themselves, and what has no effect."""
    for section in SECTIONS:
        declared, table = section.names(declarations), tables[section.key]
        rowed = table.by_name()
        yield from (f"{section.key}: {problem}" for problem in table.problems)
        yield from (f"{section.key}: {name!r} is declared and has no row" for name in declared if name not in rowed)
        yield from (f"{section.key}: {name!r} is not declared any more" for name in rowed if name not in declared)
        yield from (f"{section.key}: {name!r} is silent" for name, row in rowed.items() if row.status == "silent")


def missing_rows(declarations: Declarations, tables: Mapping[str, Table]) -> Iterator[str]:
    for section in SECTIONS:
        rowed = tables[section.key].by_name()
        missing = sorted(name for name in section.names(declarations) if name not in rowed)
        if missing:
            yield f"# {section.key}.toml"
            yield from (f'"{name}" = {{ silent = "" }}' for name in missing)


def summarize(declarations: Declarations, tables: Mapping[str, Table], problems: int) -> str:
    found: Counter[str] = Counter()
    for section in SECTIONS:
        by_name = tables[section.key].by_name()
        found.update(by_name[name].status for name in section.names(declarations) if name in by_name)
    counts = ", ".join(f"{found[status]} {status}" for status in rows.STATUSES)
    return f"{declarations.versions}: {found.total()} names ({counts}), {problems} problems\n"


if __name__ == "__main__":
    raise SystemExit(main())
