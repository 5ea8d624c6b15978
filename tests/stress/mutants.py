"""Change the source in one place at a time, and see whether a test notices.

    python -m tests.stress.mutants                      the whole sample: several hours on two cores
    python -m tests.stress.mutants --take 40            40 of it, spread over the packages
    python -m tests.stress.mutants --package engine     those of one package
    python -m tests.stress.mutants --quick              without the process tier: a lower bound, in a tenth of the time
    python -m tests.stress.mutants --draw 320           draw a new sample, and write it to mutants.tsv

The sample is kept, so that a redesign is compared with what was before it: a row names the function, the expression and
what it becomes. A row whose expression is gone is reported as such, and is not counted.

Each mutant is made in a copy of the repository with an environment of its own. The tests that cover it run in up to
three steps, until one fails: those that import the module, then the mirrored folders of the unit and session tiers,
then that of the process tier. A run that does not end counts as killed. Tests that also fail without the change do
not count.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.helpers import paths

ROOT = paths.ROOT
SAMPLE = Path(__file__).with_suffix(".tsv")
SEED = 38
STEP_SECONDS = 300
COPIED = ("src", "tests", "scripts", "bench", "docs", "examples", "pyproject.toml", "README.md", "mkdocs.yml")
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
NOT_TESTED = ("protocol/typescript.py", "gateway/demo/", "cluster/demo.py", "cli/commands/completion.py")


@dataclass(frozen=True)
class Mutant:
    """One change of one expression or statement."""

    file: str
    """Below `src/parley`."""
    function: str
    original: str
    at: int
    """Which of several equal expressions in the function."""
    becomes: str


@dataclass(frozen=True)
class Change:
    """A mutant, and where it is in the file now, in bytes."""

    mutant: Mutant
    start: int
    end: int


def find_changes(file: str, source: bytes) -> Iterator[Change]:
    """Every change that can be made to a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: Counter[tuple[str, str, str]] = Counter()
    for function, node, becomes in walk(ast.parse(source), ""):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        original = " ".join(source[start:end].decode().split())
        at = seen[function, original, becomes]
        seen[function, original, becomes] += 1
        yield Change(Mutant(file, function, original, at, becomes), start, end)


def walk(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Function, node and what it becomes."""
    for node in ast.iter_child_nodes(tree):
        inner = function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{function}.{node.name}".strip(".")
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if function and isinstance(node, ast.expr | ast.stmt):
            yield from ((function, node, becomes) for becomes in mutate(node))
        if not isinstance(node, ast.JoinedStr):  # Python 3.11 does not know where its parts are
            yield from walk(node, inner)


def mutate(node: ast.expr | ast.stmt) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield f"{ast.unparse(left)} {COMPARISONS[type(operator)]} {ast.unparse(right)}"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({ast.unparse(operand)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield f"({ast.unparse(orelse)} if {ast.unparse(test)} else {ast.unparse(body)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub() as operator, left=left, right=right):
            sign = "-" if isinstance(operator, ast.Add) else "+"
            if not isinstance(left, ast.Constant | ast.JoinedStr):
                yield f"({ast.unparse(left)} {sign} {ast.unparse(right)})"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Continue() | ast.AugAssign():
            yield "pass"


def list_changes() -> Iterator[Change]:
    source = ROOT / "src" / "parley"
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        if not file.startswith(NOT_TESTED):
            yield from find_changes(file, path.read_bytes())


def draw(count: int) -> list[Mutant]:
    """A sample in which each file has as many mutants as its size deserves."""
    every = [change.mutant for change in list_changes()]
    return sorted(random.Random(SEED).sample(every, count), key=lambda one: (one.file, one.function, one.original))


def write_sample(mutants: Sequence[Mutant]) -> None:
    with SAMPLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, "excel-tab", lineterminator="\n").writerows(map(astuple, mutants))


def read_sample() -> list[Mutant]:
    with SAMPLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, "excel-tab")
        return [Mutant(path, function, old, int(at), new) for path, function, old, at, new in rows]


def locate(mutants: Sequence[Mutant]) -> dict[Mutant, Change | None]:
    """Where each mutant is today: in its file, or, if that has moved, wherever function and expression are the same."""
    by_mutant: dict[Mutant, Change] = {}
    moved: dict[tuple[str, str, int, str], list[Change]] = {}
    for change in list_changes():
        one = change.mutant
        by_mutant[one] = change
        moved.setdefault((one.function, one.original, one.at, one.becomes), []).append(change)
    found: dict[Mutant, Change | None] = {}
    for one in mutants:
        elsewhere = moved.get((one.function, one.original, one.at, one.becomes), [])
        found[one] = by_mutant.get(one) or (elsewhere[0] if len(elsewhere) == 1 else None)
    return found


def make_copy(folder: Path) -> Path:
    """Copy the repository. Returns an interpreter that finds the copied source instead of this one."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        else:
            shutil.copy2(ROOT / name, folder / name)
    environment = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    packages = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
    # Only on the path, our own folder of packages leads to no editable installation.
    Path(packages, "copy.pth").write_text(f"{folder / 'src'}\n{sysconfig.get_path('purelib')}\n")
    for program in Path(sys.executable).parent.iterdir():
        target = environment / "bin" / program.name
        if target.exists() or not program.is_file():
            continue
        with program.open("rb") as file:
            is_ours = file.readline().startswith(b"#!" + os.fsencode(sys.executable)[:-1])
        if is_ours:
            _, _, text = program.read_text(encoding="utf-8").partition("\n")
            target.write_text(f"#!{python}\n{text}", encoding="utf-8")
            target.chmod(0o755)
        else:
            target.symlink_to(program)
    return python


def choose_tests(file: str, *, quick: bool) -> Iterator[list[str]]:
    """The tests that cover a file, in steps."""
    module = "parley." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    importing = re.compile(rf"\b{re.escape(module)}\b")
    importers = [
        path.relative_to(ROOT).as_posix()
        for tier in ("unit", "session")
        for path in sorted((ROOT / "tests" / tier).rglob("test_*.py"))
        if importing.search(path.read_text(encoding="utf-8"))
    ]
    if importers:
        yield importers
    for tiers in (("unit", "session"), *([] if quick else [("process",)])):
        folders = [found for tier in tiers if (found := mirror(tier, file))]
        if folders:
            yield folders


def mirror(tier: str, file: str) -> str:
    """The folder of a tier that mirrors that of the file, or the nearest above it; empty if there is none."""
    parts = Path(file).parent.parts
    for length in range(len(parts), 0, -1):
        folder = ROOT / "tests" / tier / Path(*parts[:length])
        if any(folder.rglob("test_*.py")):
            return folder.relative_to(ROOT).as_posix()
    return ""


def is_killed(
    change: Change, folder: Path, python: Path, healthy: dict[tuple[str, ...], bool], *, quick: bool = False
) -> bool:
    """Make the change in the copy, run the tests, and undo it. `healthy`: which tests pass without any change."""
    path = folder / "src" / "parley" / change.mutant.file
    source = path.read_bytes()
    for tests in choose_tests(change.mutant.file, quick=quick):
        path.write_bytes(source[: change.start] + change.mutant.becomes.encode() + source[change.end :])
        try:
            is_noticed = fails(tests, folder, python)
        finally:
            path.write_bytes(source)
        if is_noticed and tuple(tests) not in healthy:
            healthy[tuple(tests)] = not fails(tests, folder, python)
        if is_noticed and healthy[tuple(tests)]:
            return True
    return False


def fails(tests: Sequence[str], folder: Path, python: Path) -> bool:
    command = [str(python), "-m", "tests.run", "-q", "-x", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return process.wait(timeout=STEP_SECONDS) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait()


def run(mutants: Sequence[Mutant], *, quick: bool) -> Counter[str]:
    """Print each outcome; returns how many there are of each."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="parley-mutants-") as place:
        folder = Path(place)
        python = make_copy(folder)
        healthy: dict[tuple[str, ...], bool] = {}
        for mutant, change in locate(mutants).items():
            started = time.monotonic()
            outcome = (
                "gone"
                if change is None
                else "killed"
                if is_killed(change, folder, python, healthy, quick=quick)
                else "survived"
            )
            outcomes[outcome] += 1
            words = f"{mutant.file}:{mutant.function}: {mutant.original[:60]} -> {mutant.becomes[:60]}"
            sys.stdout.write(f"{outcome:8} {time.monotonic() - started:5.0f} s  {words}\n")
            sys.stdout.flush()
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, metavar="N", help="draw a new sample, and write it")
    parser.add_argument("--take", type=int, metavar="N", help="only N mutants, spread over the sample")
    parser.add_argument("--package", default="", help="only those of this package")
    parser.add_argument("--quick", action="store_true", help="only the unit and session tiers")
    given = parser.parse_args()
    if given.draw:
        write_sample(draw(given.draw))
        return 0
    mutants = [one for one in read_sample() if one.file.startswith(given.package)]
    if given.take:
        mutants = mutants[:: max(1, len(mutants) // given.take)][: given.take]
    outcomes = run(mutants, quick=given.quick)
    judged = outcomes["killed"] + outcomes["survived"]
    rate = outcomes["killed"] / max(1, judged)
    sys.stdout.write(f"{outcomes['killed']} of {judged} killed ({rate:.0%}), {outcomes['gone']} gone\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
