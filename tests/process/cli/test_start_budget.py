"""What a start may load: the engine is spawned once per session, so every module, class and pattern counts.

The figures do not depend on the speed of the machine. `python bench/instructions.py` shows what they amount to.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parley import Script
from parley.testing.model_server import running
from tests.helpers.environment import base_environment

BUDGETS = {
    "initialize": {"modules": 150, "other modules": 82, "classes": 430, "patterns": 1, "bytecode": 594_500},
    "result": {"modules": 168, "other modules": 99, "classes": 470, "patterns": 3, "bytecode": 685_500},
}
"""The most that parley may load until the reply to `initialize`, and until the result of a first prompt over HTTP.

A little more than it loads. Modules, classes, compiled patterns and bytecode (in bytes) are those of parley.
"""
ADVICE = (
    "The start has become slower. Import what not every session needs in the function that uses it, and pass patterns "
    "that are rarely used to `re` as text. If the start needs more, raise the budget and give the reason in the commit."
)
COUNTER = """
import builtins, json, re._compiler, sys, types

counts = {"classes": 0, "patterns": 0}
before = set(sys.modules)
build_class, compile_pattern = builtins.__build_class__, re._compiler.compile

def count_class(body, *args, **options):
    counts["classes"] += body.__globals__["__name__"].startswith("parley.")
    return build_class(body, *args, **options)

def count_pattern(*args):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in ("re", "functools"):
        frame = frame.f_back
    counts["patterns"] += frame.f_globals["__name__"].startswith("parley.")
    return compile_pattern(*args)

def bytes_of(code):
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return len(code.co_code) + sum(map(bytes_of, inner))

builtins.__build_class__, re._compiler.compile = count_class, count_pattern
from parley.cli.main import main

code = main(sys.argv[1:])
loaded = [sys.modules[name] for name in sys.modules.keys() - before if type(sys.modules[name]) is types.ModuleType]
own = [module.__spec__ for module in loaded if module.__name__.startswith("parley.")]
counts |= {"modules": len(own), "other modules": len(loaded) - len(own)}
counts["bytecode"] = sum(bytes_of(spec.loader.get_code(spec.name)) for spec in own)
sys.stderr.write(json.dumps(counts))
sys.exit(code)
"""
STREAM = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
INITIALIZE = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize", "hooks": None}}
PROMPT = {"type": "user", "message": {"role": "user", "content": "hello"}}


def count(folder: Path, *lines: object) -> dict[str, int]:
    with running(Script(["Hi"])) as server:
        done = subprocess.run(
            [sys.executable, "-c", COUNTER, *STREAM],
            input="".join(json.dumps(line) + "\n" for line in lines),
            capture_output=True,
            text=True,
            env={
                "HOME": str(folder),
                **base_environment(),
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": "key",
            },
            cwd=folder,
            timeout=60,
            check=True,
        )
    kinds = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert kinds[-1] == ("control_response" if len(lines) == 1 else "result")
    counts: dict[str, int] = json.loads(done.stderr)
    return counts


@pytest.mark.parametrize(("until", "lines"), [("initialize", [INITIALIZE]), ("result", [INITIALIZE, PROMPT])])
def test_a_start_loads_no_more_than_its_budget(until: str, lines: list[object], tmp_path: Path) -> None:
    counts = count(tmp_path, *lines)
    budget = BUDGETS[until]
    if sys.version_info[:2] != (3, 11):  # these differ between versions of Python
        del counts["other modules"], counts["bytecode"]
    exceeded = {name: f"{number:,} of {budget[name]:,}" for name, number in counts.items() if number > budget[name]}
    assert not exceeded, f"{exceeded}\n{ADVICE}"
