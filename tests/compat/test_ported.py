"""What the official SDK's example programs show, in programs of our own, with either SDK in front of our engine.

Each file in ported/ is a program for the official SDK. It runs with that SDK, and with ours after its import lines
were changed, against a model server that plays the script beside it. Both print what its docstring promises, and the
model is asked the same by both.

    quick_start, streaming_mode, streaming_mode_trio, hooks, tool_permission_callback, mcp_calculator, agents,
    filesystem_agents, setting_sources, stderr_callback, include_partial_messages, max_budget_usd, plugin_example,
    system_prompt, tools_option, session_store
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from parley.models.script import read_script
from parley.testing.model_server import ModelServer, running
from tests.compat.harness import installed
from tests.compat.install import CURRENT_PYTHON

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (HERE / "ported").glob("[!_]*.py"))
ENGINE = Path(sys.executable).with_name("parley")
IMPORT = re.compile(r"^from claude_agent_sdk\b", re.MULTILINE)
NOT_WITH_THE_OFFICIAL = {"streaming_mode_trio"}
"""trio does not come with the official SDK."""
DIFFERS = re.compile(r"(ours|official)(?=[\\/\"-])|\ba[0-9a-f]{8,16}\b|duration_ms: [0-9]+|by user( for tool use)?\]")
"""Folders of the two runs, ids of agents, how long they took, and whether an interrupt met an answer or its call."""
PATIENCE_SECONDS = 240


def promised(name: str) -> str:
    told = ast.get_docstring(ast.parse((HERE / "ported" / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return dedent(told.partition("\nPrints:\n")[2]).strip()


@dataclass
class Ran:
    printed: dict[str, str]
    asked: dict[str, list[Any]]
    """What the model was asked, by the program that did."""


def run_all(python: str, folder: Path, names: list[str], ported: bool) -> Ran:
    """All programs with one SDK."""
    home = folder / "home"
    (home / "bin").mkdir(parents=True)
    # The official SDK looks for `claude`; ours finds its own engine, but must not depend on where.
    (home / "bin" / "claude").symlink_to(ENGINE)
    environment = {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    environment["CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK"] = "1"  # or the official SDK starts every engine twice
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running(script(name))) for name in names}
        programs = [laid_out(name, folder, servers[name], ported) for name in names]
        done = subprocess.run(
            [python, str(HERE / "drivers" / "one_by_one.py")],
            input=json.dumps(programs),
            capture_output=True,
            text=True,
            env=environment,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return Ran(json.loads(done.stdout), {name: asked(server) for name, server in servers.items()})


def script(name: str) -> Any:
    path = HERE / "ported" / f"{name}.toml"
    return read_script(path.read_text(encoding="utf-8"), path.name)


def laid_out(name: str, folder: Path, server: ModelServer, ported: bool) -> dict[str, Any]:
    """A program in a copy of the project."""
    work = folder / name
    shutil.copytree(HERE / "ported" / "project", work)
    source = (HERE / "ported" / f"{name}.py").read_text(encoding="utf-8")
    path = folder / f"{name}.py"
    path.write_text(IMPORT.sub("from parley", source) if ported else source)
    key = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
    return {"name": name, "path": str(path), "cwd": str(work), "environment": key}


def asked(server: ModelServer) -> list[Any]:
    """Every request without what must differ: the folders and the ids."""
    return [request(exchange.body) for exchange in server.exchanges if exchange.path == "/v1/messages"]


def request(body: Any) -> Any:
    system = [block["text"] for block in body.get("system", [])]
    tools = [tool["name"] for tool in body.get("tools", [])]
    return alike([body["model"], system, tools, [texts(message) for message in body["messages"]]])


def texts(message: Any) -> Any:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        message["role"],
        *[{key: part.get(key) for key in ("type", "text", "name", "input", "content")} for part in parts],
    ]


def alike(value: Any) -> Any:
    return json.loads(DIFFERS.sub("…", json.dumps(value)))


def test_ported_programs_behave_as_before(tmp_path: Path) -> None:
    """One test for all: whoever splits tests among processes must not run everything in each of them."""
    official = [name for name in PROGRAMS if name not in NOT_WITH_THE_OFFICIAL]
    python = str(installed(CURRENT_PYTHON).program())
    with ThreadPoolExecutor() as pool:
        first = pool.submit(run_all, sys.executable, tmp_path / "ours", PROGRAMS, True)
        second = pool.submit(run_all, python, tmp_path / "official", official, False)
        ours, theirs = first.result(), second.result()

    assert {name: text.strip() for name, text in ours.printed.items()} == {name: promised(name) for name in PROGRAMS}
    assert {name: text.strip() for name, text in theirs.printed.items()} == {name: promised(name) for name in official}
    assert [name for name in official if ours.asked[name] != theirs.asked[name]] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_import_lines_are_changed(name: str) -> None:
    source = (HERE / "ported" / f"{name}.py").read_text(encoding="utf-8")

    assert len(IMPORT.findall(source)) == 1
    assert source.count("claude_agent_sdk") == 1
