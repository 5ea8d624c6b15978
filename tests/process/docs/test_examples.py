"""Every example runs as a user runs it, without a key and without a network, and prints what its docstring promises."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from parley.testing import Script, running
from tests.helpers import paths
from tests.helpers.environment import base_environment
from tests.helpers.patience import PATIENCE_SECONDS

FOLDER = paths.ROOT / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py"))


def promised(path: Path) -> str:
    """What the docstring of an example says that it prints."""
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    _, found, block = told.partition("\nPrints:\n")
    assert found, f"{path.name} does not say what it prints"
    return dedent(block).strip()


def run(path: Path, home: Path) -> subprocess.CompletedProcess[str]:
    work = home / "work"
    work.mkdir(parents=True)
    environment = {"HOME": str(home), **base_environment(), "LANG": "C.UTF-8", "PYTEST_DEBUG_TEMPROOT": str(home)}
    command = [sys.executable, "-W", "error", str(path)]
    if path.name.startswith("test_"):
        command[1:] = ["-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=work, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_promises(tmp_path: Path, name: str) -> None:
    done = run(FOLDER / name, tmp_path)
    printed = done.stdout.strip()
    if name.startswith("test_"):
        printed = printed.splitlines()[-1].partition(" in ")[0]

    stderr = re.sub("total_cost_usd is 0 because the price of .* is not known\n", "", done.stderr)
    assert (printed, stderr, done.returncode) == (promised(FOLDER / name), "", 0)


def test_the_ported_program_works_with_a_model_without_a_price(tmp_path: Path) -> None:
    with running(Script(["Hello."])) as server:
        env = f'env={{"OPENAI_BASE_URL": "{server.url}/v1", "OPENAI_API_KEY": "any"}}'
        source = (FOLDER / "port.py").read_text(encoding="utf-8")
        (tmp_path / "port.py").write_text(source.replace('model="offline"', f'model="openai:x", {env}'))
        done = run(tmp_path / "port.py", tmp_path)

    said = "total_cost_usd is 0 because the price of openai:x is not known\n"
    assert (done.stdout, done.stderr) == ("Claude: Hello.\nCost: $0.0000\n", said)


def test_every_example_is_in_the_list() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")

    assert [name for name in EXAMPLES if f"[{name}]({name})" not in listed] == []


def test_pyright_accepts_the_examples() -> None:
    for needed in ("pyright", "fastapi", "django"):
        pytest.importorskip(needed)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *map(str, sorted(FOLDER.glob("*.py")))]
    done = subprocess.run(
        [*command, str(FOLDER / "backends")], capture_output=True, text=True, timeout=PATIENCE_SECONDS * 3, check=False
    )
    assert "0 errors" in done.stdout, done.stdout
