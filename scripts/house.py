"""Report on the structure of the source: import cycles, folder sizes, long functions, repeated names, old words.

    python scripts/house.py            the report
    python scripts/house.py --lists    with every finding, not only the counts

It never fails. `tests/unit/test_layers.py` enforces the rules.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
OLD_WORDS = (
    r"flaws?|(?<!suite )(?<!check\.)complain(?:s|ed|t|ts)?(?!\.no-)|"
    r"lodgings?|errands?|puppets?|who was robbed|foyer|outfit|insistence|"
    r"turn(?:ed)? away|nobody|somebody|whoever|goes on|is over|begun|costs the turn|"
    r"(?<!there )(?<!There )is no (?!longer|such|one)[a-z]+|(?<!there )(?-i:is none)|"
    r"manners|variety|varieties|the original|document 00\d|seed 00\d|source 00\d|programmes?|(?<!\.)talk"
)
FIELDS_AIM, LINES_AIM, PARAMETERS_AIM, FILES_AIM = 30, 60, 6, 18
WORDS_AIM = 50_000
USER_PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md", "docs/**/*.md")
CONTRIBUTOR_PAGES = (
    *("docs/architecture.md", "docs/decisions/", "docs/dependencies.md", "docs/extending.md", "docs/session-log.md"),
    *("docs/acp-schema.md", "docs/conformance.md", "docs/parity.md", "docs/reference/", "docs/sdk-surface.md"),
)
"""Not counted among the words for users: for those who change Parley, or compare it (and the site does not search)."""
GENERATED = re.compile(r"<!-- generated: \w+ -->\n(.*?)<!-- end -->", re.DOTALL)
PLACEHOLDER = "*`make docs` writes this part to `build/docs`; the web site shows it.*"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((SOURCE / "parley").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.Module, names: dict[str, Path]) -> Iterator[str]:
    """Our modules that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in names or node.module in names:
                    yield inner if inner in names else node.module


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one module, largest first (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        work = [(start, iter(graph[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    work.append((other, iter(graph[other])))
                    break
                if other in stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[str] = []
                    while component[-1:] != [node]:
                        component.append(stack.pop())
                    if len(component) > 1:
                        found.append(sorted(component))

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


def parameters(function: Function) -> int:
    args = function.args
    named = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")])


def fields(node: ast.ClassDef) -> int:
    """Declared fields, or the attributes that `__init__` sets."""
    declared = sum(isinstance(child, ast.AnnAssign) for child in node.body)
    init = next((child for child in node.body if isinstance(child, Function) and child.name == "__init__"), None)
    if init is None:
        return declared
    assigned = {
        target.attr
        for child in ast.walk(init)
        for target in (
            child.targets
            if isinstance(child, ast.Assign)
            else [child.target]
            if isinstance(child, ast.AnnAssign)
            else []
        )
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }
    return max(declared, len(assigned))


def late_imports(tree: ast.Module) -> int:
    """How many imports are inside functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return len({node for one in functions for node in ast.walk(one) if isinstance(node, ast.Import | ast.ImportFrom)})


def shallow_share() -> str:
    """Which part of the lines of tests is in files that import only the package itself, or its testing kit."""
    lines = {True: 0, False: 0}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        is_shallow = not re.search(r"^\s*(?:from|import) parley\.(?!testing\b|types\b)", text, re.MULTILINE)
        lines[is_shallow] += len(text.splitlines())
    return f"{lines[True] / sum(lines.values()):.0%}"


def takes_session(tree: ast.Module) -> bool:
    """Whether a function or class of the module takes a `Session`."""
    return any(
        isinstance(node, ast.arg)
        and node.annotation is not None
        and ast.unparse(node.annotation).strip("'\"") == "Session"
        for node in ast.walk(tree)
    )


def count_words(text: str) -> int:
    """Words of a page as it is committed: without code blocks, addresses of links and the frames of tables."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return sum(bool(re.search(r"\w", word)) for word in re.sub(r"\]\([^)]*\)", "]", text).split())


def user_pages() -> dict[str, str]:
    """The committed pages for users by their paths."""
    paths = {path.relative_to(ROOT).as_posix(): path for pattern in USER_PAGES for path in sorted(ROOT.glob(pattern))}
    return {name: path.read_text("utf-8") for name, path in paths.items() if not name.startswith(CONTRIBUTOR_PAGES)}


def generated_words() -> list[str]:
    """Every committed page with words that a program wrote into it."""
    parts = {
        name: [part for part in GENERATED.findall(text) if PLACEHOLDER not in part]
        for name, text in user_pages().items()
    }
    return [f"{name}: {sum(map(count_words, found))}" for name, found in parts.items() if found]


def old_words() -> list[str]:
    """Every line of code or documentation with a word of the old vocabulary."""
    listed = subprocess.check_output(
        ["git", "ls-files", "src", "docs", "*.md", "scripts", "bench", "examples"], cwd=ROOT, text=True
    )
    pattern = re.compile(rf"\b(?:{OLD_WORDS})\b", re.IGNORECASE)
    found = []
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix not in (".py", ".md") or path == Path(__file__).resolve() or not path.exists():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{name}:{number}: {match[0]}" for match in pattern.finditer(line)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", action="store_true", help="print every finding")
    lists = parser.parse_args().lists
    names = modules()
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in names.items()}
    graph = {name: set(imported(tree, names)) - {name} for name, tree in trees.items()}
    classes: dict[str, list[str]] = defaultdict(list)
    long, wide, large = [], [], []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
                if fields(node) > FIELDS_AIM:
                    large.append(f"{name}:{node.name} {fields(node)}")
            elif isinstance(node, Function):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > LINES_AIM:
                    long.append(f"{name}:{node.name} {size}")
                if parameters(node) > PARAMETERS_AIM:
                    wide.append(f"{name}:{node.name} {parameters(node)}")
    folders = {
        str(folder.relative_to(SOURCE)): count
        for folder in sorted({path.parent for path in names.values()})
        if (count := len([one for one in folder.glob("*.py") if one.name != "__init__.py"])) > FILES_AIM
    }
    inside = ("parley.engine.session", "parley.engine.control")
    takers = [name for name, tree in trees.items() if takes_session(tree) and not name.startswith(inside)]
    repeated = {name: where for name, where in classes.items() if len(where) > 1}
    in_engine = {
        name: own
        for name, where in repeated.items()
        if len(own := [module for module in where if module.startswith("parley.engine")]) > 1
    }
    found_cycles = cycles(graph)
    words = old_words()
    sizes = {name: count_words(text) for name, text in user_pages().items()}
    generated = generated_words()
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in names.values())
    largest = len(found_cycles[0]) if found_cycles else 0
    report: list[tuple[str, object, str, list[str]]] = [
        ("lines of source", lines, "<= 105,000", []),
        ("modules", len(names), "<= 480", []),
        ("imports inside functions", sum(map(late_imports, trees.values())), "<= 150", []),
        ("imports between modules", sum(map(len, graph.values())), "", []),
        ("lines of tests that import no inner module", shallow_share(), ">= 60%", []),
        ("largest import cycle", largest, "<= 3", [", ".join(one) for one in found_cycles]),
        ("folders over 18 files", len(folders), "0", [f"{name} {count}" for name, count in folders.items()]),
        ("modules that take a Session (outside session, control)", len(takers), "<= 5", takers),
        ("functions over 60 lines", len(long), "0", long),
        ("functions over six parameters", len(wide), "few", wide),
        ("classes over 30 fields", len(large), "option tables only", large),
        ("class names used twice", len(repeated), "<= 15", [f"{n}: {', '.join(w)}" for n, w in repeated.items()]),
        ("of them within the engine", len(in_engine), "0", [f"{n}: {', '.join(w)}" for n, w in in_engine.items()]),
        ("old words", len(words), "0", words),
        (
            "words for users",
            sum(sizes.values()),
            f"<= {WORDS_AIM:,}",
            [f"{size:>6} {name}" for name, size in sizes.items()],
        ),
        ("words of generated files in a checkout", sum(int(one.split()[-1]) for one in generated), "0", generated),
    ]
    for title, value, aim, findings in report:
        print(f"{title:<58} {value!s:>7}   {f'aim {aim}' if aim else ''}".rstrip())
        if lists:
            print("".join(f"    {finding}\n" for finding in findings), end="")


if __name__ == "__main__":
    main()
