"""Clients in several languages with `parley fake`: a scenario plays the engine, correct, rough or broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat.harness import DRIVERS, ENGINE, Stage, installed
from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT
from tests.helpers import paths
from tests.helpers.environment import base_environment

pytest_plugins = ["parley.testing.plugin"]

EXAMPLES = paths.ROOT / "examples" / "testing"
OWN_TOOL = """
[[turn]]
steps = [{ call = "mcp__own__add", input = { a = 1, b = 2 } }, { say = "Added." }]
"""
HOOK = ["hook", ["UserPromptSubmit", None]]
Install = Callable[[str | Path], str]


def scenario(name: str) -> Path:
    return EXAMPLES / "scenarios" / f"{name}.toml"


def split(told: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """What was told about each scenario."""
    found: dict[str, list[Any]] = {}
    for what, value in told:
        if what == "scenario":
            found[value] = last = []
        else:
            last.append([what, value])
    return found


def test_the_official_python_sdk_talks_to_a_fake_engine(tmp_path: Path, fake_claude: Install) -> None:
    large = {"max_buffer_size": 10_000_000}
    rough, crash = fake_claude(scenario("rough")), fake_claude(scenario("crash"))
    scenarios = [
        ["clean", fake_claude(scenario("clean")), {}],
        ["dangerous", fake_claude(scenario("dangerous")), {}],
        ["rough", rough, large],
        ["too long", rough, {}],
        ["crash", crash, {}],
        ["own tool", fake_claude(OWN_TOOL), {}],
    ]
    told = split(Stage(installed(CURRENT_PYTHON), tmp_path).run("scenarios", [], scenarios=scenarios).told)

    assert told["clean"] == [
        HOOK,
        ["text", "I will delete the build directory."],
        ["hook", ["PreToolUse", "Bash"]],
        ["asked", ["Bash", {"command": "rm -r build"}]],
        ["text", "Cleaned."],
        ["result", ["success", "Cleaned.", None]],
    ]
    assert told["dangerous"][-1] == ["result", ["success", "I may not delete everything.", None]]
    assert told["rough"][-1] == ["result", ["success", "Done.", None]]
    assert "maximum buffer size" in told["too long"][-1][1]["text"]
    assert ["text", "I begin."] in told["crash"]
    assert "exit code 3" in told["crash"][-1][1]["text"]
    assert told["own tool"][-2:] == [["text", "Added."], ["result", ["success", "Added.", None]]]


def test_the_official_typescript_sdk_talks_to_a_fake_engine(tmp_path: Path, fake_claude: Install) -> None:
    names = ("clean", "dangerous", "rough", "crash")
    scenarios = [[name, fake_claude(scenario(name))] for name in names]
    told = split(Stage(installed(TYPESCRIPT), tmp_path).run("scenarios", [], scenarios=scenarios).told)

    assert told["clean"][-1] == ["result", ["success", "Cleaned.", None]]
    assert ["asked", ["Bash", {"command": "rm -r build"}]] in told["clean"]
    assert told["dangerous"][-1] == ["result", ["success", "I may not delete everything.", None]]
    assert told["rough"][-1] == ["result", ["success", "Done.", None]]
    assert "exited with code 3" in told["crash"][-1][1]["text"]


def test_a_client_in_shell_talks_to_a_fake_engine(fake_claude: Install) -> None:
    def run(name: str) -> str:
        command = ["sh", str(DRIVERS / "scenarios.sh"), fake_claude(scenario(name))]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    assert run("clean") == "Cleaned.\nexit code 0\n"
    assert run("dangerous") == "I may not delete everything.\nexit code 0\n"
    assert run("rough") == "Done.\nexit code 0\n"
    assert run("crash") == "exit code 3\n"


@pytest.mark.parametrize("language", ["python", "typescript", "perl"])
def test_the_example_applications_pass_their_own_tests(language: str, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "testing")
    folder = tmp_path / "testing" / language
    command = {
        "python": [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "."],
        "typescript": ["node", "--test"],
        "perl": ["prove", "cleaner.t"],
    }[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} on this machine")
    if language == "typescript":
        (folder / "node_modules").symlink_to(installed(TYPESCRIPT).place / "node_modules")
    home = {"HOME": str(tmp_path), **base_environment(), "LANG": "C.UTF-8", "PARLEY": str(ENGINE)}
    home["PYTEST_DEBUG_TEMPROOT"] = str(tmp_path)
    done = subprocess.run(command, cwd=folder, env=home, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
