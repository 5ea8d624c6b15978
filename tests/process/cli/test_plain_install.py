"""`pip install parley-agent` without extras: an environment with exactly the required packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import parley
from parley.version import how_to_install
from tests.helpers import paths
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.terminal import TerminalHarness

SOURCES = Path(parley.__file__).parents[1]
NEEDED = f"servers reached by URL need the package mcp 2.3 or later: {how_to_install('mcp')}"
OPTIONAL = {
    "mcp",
    "mcp_types",
    "nats",
    "psycopg",
    "opentelemetry",
    "anthropic",
    "harbor",
    "pytest",
    "rich",
    "markdown_it",
    "pygments",
} | {
    "prompt_toolkit",
    "pygments",
    "pypdf",
    *("starlette", "uvicorn", "uvloop", "websockets"),
}
"""Packages of extras, and pytest, which runs the conformance suites."""
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import parley
missing = {}
for module in pkgutil.walk_packages(parley.__path__, "parley."):
    if module.name == "parley.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as exc:
        missing[module.name] = exc.name.partition(".")[0]
print(json.dumps(missing))
"""


def required(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """A distribution and its requirements without extras."""
    if name not in found:
        found[name] = distribution(name)
        for text in found[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                required(requirement.name.lower().replace("_", "-"), found)
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the files of these distributions and nothing else."""
    folder = tmp_path_factory.mktemp("packages")
    for one in required("parley-agent", {}).values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not top.endswith(".pth"):
                (folder / top).symlink_to(Path(str(one.locate_file(top))))
    return folder


def run_python(packages: Path, folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{SOURCES}:{packages}", **more},
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_the_environment_has_what_we_require_and_no_extra(packages: Path, tmp_path: Path) -> None:
    done = run_python(packages, tmp_path, "-c", "import httpx2, jsonschema, msgspec; import mcp")

    assert "No module named 'mcp'" in done.stderr


def test_every_module_loads_unless_a_package_of_an_extra_is_missing(packages: Path, tmp_path: Path) -> None:
    done = run_python(packages, tmp_path, "-W", "error", "-c", IMPORT_ALL)

    assert done.stderr == ""
    missing = json.loads(done.stdout)
    assert {"mcp"} <= set(missing.values()) <= OPTIONAL


@pytest.mark.parametrize(
    ("extra", "variable", "flags", "code"),
    [
        ("otel", {"OTEL_TRACES_EXPORTER": "otlp"}, (), 0),
        ("postgres", {}, ("--store", "postgres://127.0.0.1/none"), 1),
        ("bedrock", {"CLAUDE_CODE_USE_BEDROCK": "1"}, ("--model", "sonnet"), 1),
        ("vertex", {"CLAUDE_CODE_USE_VERTEX": "1"}, ("--model", "sonnet"), 1),
    ],
)
def test_what_needs_an_extra_says_how_to_install_it(
    packages: Path, tmp_path: Path, extra: str, variable: dict[str, str], flags: tuple[str, ...], code: int
) -> None:
    start = ("-c", "from parley.cli.main import run; run()", "-p", "--model", "offline")
    done = run_python(packages, tmp_path, *start, *flags, "--", "say Hi", **variable)

    assert (done.returncode, done.stdout) == (code, "" if code else "Hi\n")
    [line] = done.stderr.splitlines()
    assert line.endswith(how_to_install(extra))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source without what is in the other two wheels."""
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    excluded = {str(paths.ROOT / name) for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]}
    folder = tmp_path_factory.mktemp("core")

    def ignore(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or f"{parent}/{name}" in excluded]

    shutil.copytree(paths.SOURCE / "parley", folder / "parley", ignore=ignore)
    return folder


@pytest.mark.parametrize(
    ("words", "extra"), [(("serve",), "server"), (("mcp", "serve"), "server"), (("conform", "x"), "kit")]
)
def test_a_subcommand_of_another_distribution_says_how_to_install_it(
    packages: Path, core: Path, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    start = ("-c", "from parley.cli.main import run; run()")
    done = run_python(packages, tmp_path, *start, *words, PYTHONPATH=f"{core}:{packages}")

    command = " ".join(("parley", *words)).removesuffix(" x")
    expected = f"`{command}` needs parley-{extra}, which is not installed; run: {how_to_install(extra)}"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: {expected}\n")


def test_the_core_alone_runs_a_prompt_and_every_module_of_it_loads(packages: Path, core: Path, tmp_path: Path) -> None:
    start = ("-c", "from parley.cli.main import run; run()", "-p", "--model", "offline", "say Hi")
    done = run_python(packages, tmp_path, *start, PYTHONPATH=f"{core}:{packages}")
    loaded = run_python(packages, tmp_path, "-c", IMPORT_ALL, PYTHONPATH=f"{core}:{packages}")

    assert done.stdout == "Hi\n"
    assert set(json.loads(loaded.stdout).values()) <= OPTIONAL


def test_a_server_behind_a_url_fails_by_the_name_of_the_extra_and_others_work(packages: Path, tmp_path: Path) -> None:
    program = str(paths.MCP_SERVERS / "plain.py")
    servers = {
        "far": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
        "stream": {"type": "sse", "url": "http://127.0.0.1:9/sse"},
        "near": {"command": sys.executable, "args": ["-S", program, "well"]},
    }
    done = run_python(
        packages,
        tmp_path,
        *("-c", "from parley.cli.main import run; run()", "--print", "--verbose", "--output-format", "stream-json"),
        *("--model", "offline", "--mcp-config", json.dumps({"mcpServers": servers}), "--", "say Hi"),
    )

    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    [init] = [line for line in lines if line.get("subtype") == "init"]
    states = {one["name"]: one["status"] for one in init["mcp_servers"]}
    reasons = {line["mcp_server"]["name"]: line["mcp_server"]["error"] for line in lines if "mcp_server" in line}
    assert states == {"far": "failed", "stream": "failed", "near": "connected"}
    assert "mcp__near__echo" in init["tools"]
    assert reasons == {"far": NEEDED, "stream": NEEDED}
    assert sorted(done.stderr.splitlines()) == [f"MCP server {name}: failed: {NEEDED}" for name in ("far", "stream")]
    assert lines[-1]["result"] == "Hi"


def test_a_terminal_shows_plain_text_and_names_the_extra(packages: Path, tmp_path: Path) -> None:
    prompt = 'call Bash {"command": "touch made.txt"}\nsay Some **bold** text.'
    terminal = TerminalHarness(tmp_path, "--model", "offline", prompt, PYTHONPATH=f"{SOURCES}:{packages}")
    terminal.program = (sys.executable, "-S", "-c", "from parley.cli.main import run; run()")
    with terminal:
        terminal.wait_for("esc ends the turn\n")
        terminal.type("y")
        assert terminal.wait() == 0

    assert (tmp_path / "made.txt").exists()
    assert "\nSome **bold** text.\n" in terminal.emulator.text
    assert " ".join(terminal.emulator.lines[-2:]).endswith(how_to_install("tui"))
