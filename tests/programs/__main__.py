"""Run programs on Parley and print a table: program, version, result.

    python -m tests.programs [NAME ...] [--newest] [--jobs N] [--engine PATH]

A recipe is a Python or JavaScript file. Its first comment declares what is installed, as PEP 723 has it:

    # /// script
    # dependencies = ["pyclaudecli==1.0.6"]
    # requires-python = ">=3.12"
    # [tool.program]
    # npm = []                  packages from npm; the first package of the first list is the program
    # turns = [{ text = "4" }]  what the model says; without it, the model follows the directives of the prompt
    # ///

It runs in an environment of its own in `.compat/`, in an empty folder, with Parley as `claude` on PATH and in the
variables that programs read. No request can leave the machine. A recipe that exits with 0 has passed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import offline, running
from tests.compat.install import Client, Unavailable, check_node, ensure, install, run
from tests.helpers.environment import base_environment

RECIPES = Path(__file__).with_name("recipes")
HELPERS = Path(__file__).with_name("helpers")
SOURCE = Path(__file__).parents[2] / "src"
ENGINE = Path(sys.executable).with_name("parley")
RUN_SECONDS = 600
NEWEST_MINOR = 14
"""The newest Python that programs are expected to run with."""
UNREACHABLE = "http://127.0.0.1:9"
"""A proxy that nothing listens on."""
VARIABLES = (
    "CLAUDE_CODE_EXECUTABLE",
    "CLAUDE_CLI_PATH",
    "CLAUDE_AGENT_CLI_PATH",
    "CLAUDE_CODE_PATH",
    "NBI_CLAUDE_CLI_PATH",
)
WITHOUT_ENGINE = ("--no-binary", "claude-agent-sdk")
"""The wheel of the SDK carries an engine, which the SDK prefers to that on PATH."""


@dataclass(frozen=True)
class Recipe:
    path: Path
    pip: tuple[str, ...]
    npm: tuple[str, ...]
    turns: tuple[ScriptedTurn, ...]
    oldest_python: str = ""
    """For example 3.12; empty if the Python of the tests will do."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def program(self) -> tuple[str, str]:
        """The package and its version; without a version, the newest is installed."""
        found = re.fullmatch(r"(@?[^@=\[]+)(?:\[.*\])?(?:==|@)?(.*)", (self.pip + self.npm)[0])
        assert found is not None
        return found[1], found[2]

    def client(self) -> Client:
        words = " ".join([*self.pip, "|", *self.npm])
        return Client(f"program-{self.name}", self.program[0], words, self._make, "bin/python" if self.pip else "node")

    def _make(self, client: Client) -> None:
        """Raises Unavailable."""
        if self.pip:
            install(client, *WITHOUT_ENGINE, *self.pip, python=find_python(self.oldest_python))
        if self.npm:
            check_node()
            client.place.mkdir(exist_ok=True)
            (client.place / "package.json").write_text('{"private": true, "type": "module"}\n')
            quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--omit=optional"]
            run(["npm", "install", "--ignore-scripts", *quiet, *self.npm], cwd=client.place)

    def installed_version(self, client: Client) -> str:
        package, pinned = self.program
        if pinned:
            return pinned
        if self.pip:
            found = client.place.glob(f"lib/*/site-packages/{package.replace('-', '_')}-*.dist-info")
            return next(path.name.removesuffix(".dist-info").rpartition("-")[2] for path in found)
        manifest = client.place / "node_modules" / package / "package.json"
        return str(msgspec.json.decode(manifest.read_bytes())["version"])


def find_python(oldest: str) -> str:
    """A Python that is at least so new. Raises Unavailable."""
    minor = int(oldest.partition(".")[2] or 0)
    if sys.version_info.minor >= minor:
        return sys.executable
    for number in range(minor, NEWEST_MINOR + 1):
        found = shutil.which(f"python3.{number}")
        if found and not subprocess.run([found, "--version"], capture_output=True, check=False).returncode:
            return found
    raise Unavailable(f"there is no Python {oldest} or newer on this machine")


@dataclass(frozen=True)
class Outcome:
    name: str
    package: str
    version: str
    status: str
    """passed, failed or unavailable."""
    output: str = ""

    @property
    def reason(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:160] if lines and self.status != "passed" else ""


def read_recipes(*, newest: bool = False) -> list[Recipe]:
    found = sorted(path for path in RECIPES.iterdir() if path.suffix in (".py", ".mjs"))
    return [read_recipe(path, newest=newest) for path in found]


def read_recipe(path: Path, *, newest: bool = False) -> Recipe:
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line in ("# /// script", "// /// script"))
    header = itertools.takewhile(lambda line: not line.endswith(" ///"), lines[start + 1 :])
    declared: dict[str, Any] = tomllib.loads("\n".join(re.sub(r"^(#|//) ?", "", line) for line in header))
    own = declared.get("tool", {}).get("program", {})
    pip, npm = tuple(declared.get("dependencies", ())), tuple(own.get("npm", ()))
    if newest:
        pip = tuple(re.sub("==.*", "", spec) for spec in pip)
        npm = tuple(re.sub("(?<=.)@.*", "", spec) for spec in npm)
    turns = msgspec.convert(tuple(own.get("turns", ())), tuple[ScriptedTurn, ...])
    return Recipe(path, pip, npm, turns, declared.get("requires-python", "").removeprefix(">="))


def run_recipe(recipe: Recipe, engine: Path = ENGINE) -> Outcome:
    """Install a program unless it is there already, and run its recipe."""
    client = recipe.client()
    package = recipe.program[0]
    try:
        ensure(client, lambda text: None)
    except Unavailable as exc:
        return Outcome(recipe.name, package, recipe.program[1], "unavailable", str(exc))
    source = Script(turn=list(recipe.turns), at_end="repeat") if recipe.turns else offline(make_counter())
    with tempfile.TemporaryDirectory(prefix="program-") as folder, running(source) as server:
        code, output = run_in(recipe, client, Path(folder), server.url, engine)
    version = recipe.installed_version(client)
    return Outcome(recipe.name, package, version, "passed" if code == 0 else "failed", output)


def make_counter() -> Any:
    count = itertools.count(1)
    return lambda: f"{next(count):024d}"


def run_in(recipe: Recipe, client: Client, folder: Path, url: str, engine: Path) -> tuple[int | None, str]:
    """The exit code and what was printed; the code is None if the program had to be killed."""
    for name in ("bin", "home", "project", "config"):
        (folder / name).mkdir()
    (folder / "bin" / "claude").symlink_to(engine)
    binaries = [folder / "bin", client.place / "bin", client.place / "node_modules" / ".bin"]
    inherited = base_environment()
    environment = {
        **inherited,
        "PATH": os.pathsep.join([*map(str, binaries), inherited["PATH"]]),
        "HOME": str(folder / "home"),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "IS_SANDBOX": "1",
        "PYTHONPATH": str(HELPERS),
        "PROGRAM": str(client.place),
        "PARLEY_SOURCE": str(SOURCE),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "a-key-for-tests",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), UNREACHABLE),
        **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
        **dict.fromkeys(VARIABLES, str(folder / "bin" / "claude")),
    }
    path = recipe.path
    if path.suffix == ".mjs":  # node looks for packages beside the file
        path = client.place / path.name
        path.write_text(recipe.path.read_text(encoding="utf-8"), encoding="utf-8")
        command = ["node", str(path)]
    else:  # a recipe may have the name of its package
        command = [str(client.program() if recipe.pip else sys.executable), "-P", str(path)]
    with subprocess.Popen(
        command,
        env=environment,
        cwd=folder / "project",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, f"{output}\nit did not end within {RUN_SECONDS} s"
    return process.returncode, output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these recipes")
    parser.add_argument("--newest", action="store_true", help="install the newest releases instead of the pinned ones")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    parser.add_argument("--engine", type=Path, default=ENGINE, help="another engine, for comparison")
    given = parser.parse_args()
    recipes = [recipe for recipe in read_recipes(newest=given.newest) if not given.names or recipe.name in given.names]
    sys.stdout.write("| program | version | result | reason |\n|---|---|---|---|\n")
    failed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(lambda recipe: run_recipe(recipe, given.engine), recipes):
            failed += outcome.status != "passed"
            sys.stdout.write(f"| {outcome.package} | {outcome.version} | {outcome.status} | {outcome.reason} |\n")
            sys.stdout.flush()
            if outcome.status == "failed":
                sys.stderr.write(f"--- {outcome.name}\n{outcome.output[-3000:]}\n")
    sys.stdout.write(f"\n{len(recipes) - failed} of {len(recipes)} programs pass\n")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
