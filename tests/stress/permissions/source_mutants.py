"""Change the permission engine in one place at a time, and see whether the tests notice.

    python -m tests.stress.permissions.source_mutants --count 300 --seed 1 [--only shell/strict_parser.py]

A mutant is one module with one small change: a comparison reversed, a condition negated, `and` for `or`, a number off
by one, a text or a table entry removed, a branch or a return dropped. A child process runs the corpora and then the
tests with it; a failing test kills the mutant. Survivors are printed: either a test is missing, or the change makes no
difference. The exit code is 1 if fewer than 90 % are killed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType

import pytest  # loaded once: children are forks of this process

from tests.helpers import paths

ROOT = paths.ROOT
PACKAGE = ROOT / "src" / "parley" / "permissions"
TIERS = tuple(paths.TESTS / tier / "permissions" for tier in ("unit", "session", "process"))
SLOW = ("process/permissions/shell/test_lazy_grammar.py", "process/permissions/test_corpus.py")
LIMIT_SECONDS = 240
LEAST_KILLED = 0.9
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
Change = tuple[str, str, Callable[[], None]]
"""The kind of a change, its description, and how to apply it."""


# Changes.


def changes(tree: ast.Module) -> Iterator[Change]:
    """All changes of a module, in an order that depends only on its text."""
    for node in code_of(tree):
        for kind, make in MAKERS.items():
            if isinstance(node, kind):
                yield from make(node)


def code_of(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that runs: no annotations, decorators, docstrings, regular expressions or error texts."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list") or (name, type(node)) == ("keywords", ast.ClassDef):
                continue
            children = value if isinstance(value, list) else [value]
            waiting += [child for child in reversed(children) if isinstance(child, ast.AST) and not is_idle(child)]


def is_idle(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "__slots__"):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
        return True
    if isinstance(node, ast.Raise):
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"


def at(node: ast.AST) -> str:
    return f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)[:90]!r}"


def of_compare(node: ast.Compare) -> Iterator[Change]:
    for place, operator in enumerate(node.ops):
        swapped = SWAPS[type(operator)]

        def swap(place: int = place, swapped: type[ast.cmpop] = swapped) -> None:
            node.ops[place] = swapped()

        yield "compare", f"{at(node)} with {swapped.__name__}", swap


def of_bool(node: ast.BoolOp) -> Iterator[Change]:
    other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and-or", f"{at(node)} with {type(other).__name__}", lambda: setattr(node, "op", other)


def of_test(node: ast.If | ast.While | ast.IfExp) -> Iterator[Change]:
    negated = ast.UnaryOp(ast.Not(), node.test)
    yield "negate", f"not {at(node.test)}", lambda: setattr(node, "test", negated)


def of_not(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Not):
        yield (
            "negate",
            f"{at(node)} without not",
            lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), node.operand)),
        )


def of_constant(node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", f"{at(node)} negated", lambda: setattr(node, "value", not value)
    elif isinstance(value, int):
        yield "constant", f"{at(node)} and one more", lambda: setattr(node, "value", value + 1)
    elif isinstance(value, str) and value.strip():
        words = value.split()
        if len(words) == 1:
            yield "text", f"{at(node)} is another", lambda: setattr(node, "value", value + "~")
        elif not is_prose(words):
            for place in range(len(words)):
                rest = " ".join(words[:place] + words[place + 1 :])
                yield "member", f"{at(node)} without {words[place]!r}", partial(setattr, node, "value", rest)


def is_prose(words: Sequence[str]) -> bool:
    """Whether a text is a sentence for people, not a table."""
    return words[0][:1].isupper() or bool({"the", "a", "is", "it", "in", "and", "of", "to"} & set(words))


def of_members(node: ast.Tuple | ast.List | ast.Set) -> Iterator[Change]:
    if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and len(node.elts) > 1:
        for place, member in enumerate(node.elts):

            def without(place: int = place) -> None:
                del node.elts[place]

            yield "member", f"{at(node)} without {ast.unparse(member)[:30]}", without


def of_entries(node: ast.Dict) -> Iterator[Change]:
    for place, value in enumerate(node.values):
        name = ast.unparse(node.keys[place] or value)[:40]

        def without(place: int = place) -> None:
            del node.keys[place], node.values[place]

        yield "member", f"line {node.lineno}: a table without {name}", without


def of_return(node: ast.Return) -> Iterator[Change]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "return", f"{at(node)} returns nothing", lambda: setattr(node, "value", ast.Constant(None))


def of_body(node: ast.If | ast.For | ast.While) -> Iterator[Change]:
    yield "branch", f"{at(node)} does nothing", lambda: setattr(node, "body", [ast.Pass()])


def of_statement(node: ast.Expr) -> Iterator[Change]:
    # A generator must stay one: its `yield` goes into a branch that is never taken.
    is_yield = isinstance(node.value, ast.Yield | ast.YieldFrom)
    idle = ast.BoolOp(ast.And(), [ast.Constant(None), node.value]) if is_yield else ast.Constant(None)
    yield "statement", f"{at(node)} is gone", lambda: setattr(node, "value", idle)


MAKERS: dict[type[ast.AST] | tuple[type[ast.AST], ...], Callable[..., Iterator[Change]]] = {
    ast.Compare: of_compare,
    ast.BoolOp: of_bool,
    (ast.If, ast.While, ast.IfExp): of_test,
    ast.UnaryOp: of_not,
    ast.Constant: of_constant,
    (ast.Tuple, ast.List, ast.Set): of_members,
    ast.Dict: of_entries,
    ast.Return: of_return,
    (ast.If, ast.For): of_body,
    ast.Expr: of_statement,
}


def mutated(source: str, number: int) -> str:
    tree = ast.parse(source)
    _, _, make = list(changes(tree))[number]
    make()
    return ast.unparse(ast.fix_missing_locations(tree))


# Running.


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces the source of one module."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"<mutant of {self._name}>", "exec"), module.__dict__)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def notices(path: Path, source: str) -> bool:
    """Run the tests with a changed module; whether one of them fails or times out."""
    child = os.fork()
    if child == 0:
        os._exit(in_child(path, source))
    return os.waitpid(child, 0)[1] != 0


def in_child(path: Path, source: str) -> int:
    """0 if no test fails."""
    signal.alarm(LIMIT_SECONDS)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.meta_path.insert(0, Finder(module_name(path), source))
    try:
        if corpora_differ():
            return 1
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
        return int(pytest.main(["-x", "-q", *quiet, *nearest_first(path)]))
    except BaseException:
        return 1


def nearest_first(path: Path) -> list[str]:
    """The tests named after the module, then those in the same folder, then all others."""
    folders = [tier / path.parent.relative_to(PACKAGE) for tier in TIERS]
    own = [folder / f"test_{path.name}" for folder in folders]
    beside = [test for folder in folders for test in sorted(folder.glob("test_*.py"))]
    found = [*own, *beside, *(test for tier in TIERS for test in sorted(tier.rglob("test_*.py")))]
    slow = {paths.TESTS / name for name in SLOW}
    return list(dict.fromkeys(str(each) for each in found if each.exists() and each not in slow))


def corpora_differ() -> bool:
    """The quick check: most mutants change the decision of some case in the corpora."""
    from tests.unit.permissions import test_corpus

    cases = map(json.loads, (paths.DATA / "permissions" / "decisions.jsonl").read_text(encoding="utf-8").splitlines())
    return any(test_corpus.decided(case) != case["expect"] for case in cases)


def modules(only: str | None) -> list[Path]:
    found = sorted(path for path in PACKAGE.rglob("*.py") if path.stat().st_size)
    return [path for path in found if only is None or str(path).endswith(only)]


def chosen(random: Random, count: int, only: str | None) -> list[tuple[Path, str, int]]:
    """An equal number of changes of each kind; otherwise nearly all would be table entries."""
    by_kind: dict[str, list[tuple[Path, str, int]]] = {}
    for path in modules(only):
        for number, (kind, what, _) in enumerate(changes(ast.parse(path.read_text(encoding="utf-8")))):
            by_kind.setdefault(kind, []).append((path, f"{kind}: {what}", number))
    for each in by_kind.values():
        random.shuffle(each)
    picked: list[tuple[Path, str, int]] = []
    while len(picked) < count and any(by_kind.values()):
        for each in by_kind.values():
            picked += [each.pop()] if each else []
    return picked[:count]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="the end of a module's path")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    first = modules(arguments.only)[0]
    if notices(first, first.read_text(encoding="utf-8")):
        sys.stdout.write("the tests fail without any change: nothing can be learned from them\n")
        return 2
    started, survivors = time.monotonic(), 0
    picked = chosen(Random(arguments.seed), arguments.count, arguments.only)
    for number, (path, what, place) in enumerate(picked, 1):
        if not notices(path, mutated(path.read_text(encoding="utf-8"), place)):
            survivors += 1
            sys.stdout.write(f"survived ({number} of {len(picked)}): {path.relative_to(PACKAGE)}, {what}\n")
            sys.stdout.flush()
    killed = len(picked) - survivors
    sys.stdout.write(
        f"{killed} of {len(picked)} killed ({killed / len(picked):.0%}), {time.monotonic() - started:.0f} s\n"
    )
    return 1 if killed < LEAST_KILLED * len(picked) else 0


if __name__ == "__main__":
    sys.exit(main())
