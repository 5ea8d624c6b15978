"""The blocks of pages that can be run as they are: pasted into a shell in an empty folder, one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parley.models.entries import parse_entry
from parley.models.prices import read_table
from tests.helpers import paths

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PATIENCE_SECONDS = 120


def blocks(page: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall((paths.DOCS / page).read_text(encoding="utf-8")) if found == kind]


def run(folder: Path, *argv: str) -> str:
    (folder / "home").mkdir(exist_ok=True)
    environment = {"HOME": str(folder / "home"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_blocks_of_the_offline_page_run(tmp_path: Path) -> None:
    [script] = blocks("offline.md", "toml")
    (tmp_path / "script.toml").write_text(script)
    shown = [run(tmp_path, "bash", "-e", "-c", block) for block in blocks("offline.md", "sh")]

    user = run(tmp_path, "id", "-un")
    assert shown[:3] == ["hi\n", user, "It says hello.\n"]
    assert shown[3] == "It says hello.\nIt says hello.\n"
    assert shown[4].splitlines()[1:] == ["Hello.", "Hello."]


def test_the_program_of_the_offline_page_runs(tmp_path: Path) -> None:
    [program] = blocks("offline.md", "python")
    shown = run(tmp_path, sys.executable, "-c", program)

    assert "Hello." in shown
    assert "Say hello." in shown.splitlines()[-1]


def test_the_settings_and_the_price_file_of_the_models_page_are_valid(tmp_path: Path) -> None:
    settings, prices = blocks("models.md", "json")
    (tmp_path / "prices.json").write_text(prices)

    found = [parse_entry(name, entry, "page") for name, entry in json.loads(settings)["models"].items()]
    assert [model.source for model in found] == ["page"]
    assert list(read_table(tmp_path / "prices.json")) == ["openai:", "house-"]


@pytest.mark.parametrize("page", ["models.md", "limits.md", "offline.md"])
def test_no_block_leaves_something_out(page: str) -> None:
    found = BLOCK.findall((paths.DOCS / page).read_text(encoding="utf-8"))

    assert found
    assert [text for _, text in found if "..." in text] == []
