"""`parley doctor` through the real executable."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from parley.cli.commands.doctor import EXTRAS
from parley.models.script import read_script
from parley.testing.model_server import running
from parley.version import __version__
from tests.helpers.paths import ROOT
from tests.helpers.ports import free_port

WORKSHOP = str(Path(__file__).parents[3] / "helpers" / "mcp_servers" / "workshop.py")
KEY = "sk-ant-very-secret"
ID = "11111111-1111-4111-8111-111111111111"


def checks(done: Any) -> dict[str, tuple[str, str]]:
    return {check["name"]: (check["level"], check["detail"]) for check in json.loads(done.stdout)["checks"]}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_doctor_is_content_with_a_machine_that_works(run: Any) -> None:
    run("mcp", "add", "shop", "--", sys.executable, WORKSHOP, "stdio")

    done = run("doctor", "--json", ANTHROPIC_API_KEY=KEY)
    found = checks(done)

    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    assert found["model"] == ("ok", "claude-opus-5-5 (anthropic), key: ANTHROPIC_API_KEY")
    assert found["version"][1].startswith(f"Parley {__version__}")
    assert found["MCP server shop"] == ("ok", "✔ Connected")
    assert {"git", "rg", "python", "PATH", "installation", "config directory", "settings files"} <= set(found)
    assert KEY not in done.stdout + done.stderr

    text = run("doctor", ANTHROPIC_API_KEY=KEY).stdout
    assert "✔ model: claude-opus-5-5" in text
    assert KEY not in text


def test_doctor_finds_what_is_wrong(run: Any, tmp_path: Path) -> None:
    put(tmp_path / "home" / ".claude" / "settings.json", '{"model": 3, "enabledPlugins": {"none@x": true}}')
    put(tmp_path / ".claude" / "settings.json", "{")
    run("mcp", "add", "gone", "--", "/nonexistent/server")

    done = run("doctor", "--json")
    rows = json.loads(done.stdout)["checks"]
    warnings = [row["detail"] for row in rows if row["level"] == "warning"]

    assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)
    assert [row["name"] for row in rows if row["level"] == "error"] == ["model"]
    assert checks(done)["model"][1].startswith("claude-opus-5-5 (anthropic): No API key")
    assert any("model must be a string" in text for text in warnings)
    assert any("settings.json:1: is not valid JSON" in text for text in warnings)
    assert any("none@x is enabled but not installed" in text for text in warnings)
    assert any("✘ Failed to connect" in text for text in warnings)
    assert run("doctor").stdout.splitlines()[-1].startswith("1 error, ")


def test_doctor_reports_a_missing_program(run: Any, tmp_path: Path) -> None:
    done = run("doctor", "--json", ANTHROPIC_MODEL="offline", PATH=str(tmp_path))
    found = checks(done)

    assert found["git"] == ("warning", "not found: the model cannot use git, and agents have no worktrees")
    assert found["PATH"] == ("warning", "`parley` is not on the PATH")
    assert found["model"] == ("ok", "offline (offline), key: none needed")
    assert done.returncode == 0


def test_extras_are_named_as_pip_takes_them(run: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    detail = checks(run("doctor", "--json", ANTHROPIC_MODEL="offline"))["extras"][1]

    others = {"dev", "docs", "plots", "all", "search", "gateway", "scale"}
    assert set(EXTRAS) == set(project["optional-dependencies"]) - others
    assert detail.startswith(
        "installed: mcp, tui, server, kit, remote, pdf, otel, postgres; not installed: "
    )  # the development environment
    assert "bedrock (Claude on Amazon Bedrock)" in detail
    assert "pip install 'parley-agent[NAME]'" in detail


def test_keys_are_named_and_never_shown(run: Any) -> None:
    done = run("doctor", "--json", ANTHROPIC_API_KEY=KEY, OPENAI_API_KEY=KEY)

    assert checks(done)["keys"] == ("ok", "set in the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY")
    assert KEY not in done.stdout + done.stderr + run("doctor", ANTHROPIC_API_KEY=KEY).stdout


def test_a_server_is_contacted_only_if_it_is_configured_and_no_tokens_are_spent(run: Any) -> None:
    found = checks(run("doctor", "--json", ANTHROPIC_API_KEY=KEY))
    assert found["model server"][1].startswith("https://api.anthropic.com (not contacted; ")

    with running(read_script("[[turn]]\ntext = 'OK'\n", "test")) as server:
        done = run("doctor", "--json", ANTHROPIC_BASE_URL=server.url.replace("//", "//me:hush@"), ANTHROPIC_API_KEY=KEY)
    assert checks(done)["model server"] == ("ok", f"{server.url} (ANTHROPIC_BASE_URL) answers")
    assert [(each.method, each.raw, "x-api-key" in each.headers) for each in server.exchanges] == [("HEAD", b"", False)]
    assert ("hush" in done.stdout, done.returncode) == (False, 0)


def test_a_server_that_does_not_answer_is_an_error(run: Any) -> None:
    port = free_port()
    variables = {"ANTHROPIC_MODEL": "openai:m", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    done = run("doctor", "--json", **variables)

    level, detail = checks(done)["model server"]
    assert (done.returncode, level) == (1, "error")
    problem = f"connection refused by http://127.0.0.1:{port}/v1: nothing listens there"
    assert detail == f"{problem} (the address is from OPENAI_BASE_URL)"
    assert problem in run("-p", "Hi.", OPENAI_API_KEY=KEY, **variables).stdout


def test_the_programs_that_win_on_the_path_are_named(run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "bin").mkdir()
    path = f"{tmp_path / 'bin'}:{environment['PATH']}"
    run("link", "claude", "bin", PATH=path)
    ours = checks(run("doctor", "--json", PATH=path))["claude"]
    (tmp_path / "bin" / "claude").unlink()
    put(tmp_path / "bin" / "claude", "#!/bin/sh\n")
    (tmp_path / "bin" / "claude").chmod(0o755)
    other = checks(run("doctor", "--json", PATH=path))["claude"]

    start = f"`claude` on the PATH is {tmp_path}/bin/claude, "
    assert (ours[0], ours[1].startswith(f"{start}a link to Parley. SDKs whose package contains")) == ("ok", True)
    assert (other[0], other[1].startswith(f"{start}not Parley. ")) == ("ok", True)


def test_the_sessions_of_the_directory_are_read(run: Any, tmp_path: Path) -> None:
    run("-p", "--model", "offline", "--session-id", ID, "say Hi.")
    run("-p", "--model", "offline", "--resume", ID, "say More.")
    whole = checks(run("doctor", "--json", ANTHROPIC_MODEL="offline"))
    assert whole["sessions"] == ("ok", "1 of this directory checked: 0 in use, 0 damaged")

    (path,) = (tmp_path / "home" / ".claude" / "projects").glob(f"*/{ID}.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"text":"Hi', b'"text":"Ho', 1))
    done = run("doctor", "--json", ANTHROPIC_MODEL="offline")
    level, detail = checks(done)["session"]
    assert (done.returncode, level, f"parley sessions repair {ID}" in detail) == (0, "warning", True)
    assert json.loads(done.stdout)["warnings"] >= 1


def test_a_store_that_cannot_be_used_is_an_error(run: Any) -> None:
    done = run("doctor", "--json", ANTHROPIC_MODEL="offline", PARLEY_STORE="postgres://me:hush@127.0.0.1:1/x")

    assert (done.returncode, checks(done)["sessions"][0]) == (1, "error")
    assert "hush" not in done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_config_directory_without_write_permission_is_an_error(run: Any, tmp_path: Path) -> None:
    (tmp_path / "home" / ".claude").mkdir(mode=0o500)
    done = run("doctor", "--json", ANTHROPIC_MODEL="offline")

    assert (done.returncode, checks(done)["config directory"][0]) == (1, "error")


def test_a_file_in_place_of_the_config_directory_is_an_error(run: Any, tmp_path: Path) -> None:
    put(tmp_path / "home" / ".claude", "")
    done = run("doctor", "--json", ANTHROPIC_MODEL="offline")

    assert (done.returncode, checks(done)["config directory"][0]) == (1, "error")


def test_modules_that_cannot_be_compiled_are_a_warning(run: Any, tmp_path: Path) -> None:
    compiled = checks(run("doctor", "--json", ANTHROPIC_MODEL="offline"))["bytecode"]
    cold = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    level, detail = checks(run("doctor", "--json", ANTHROPIC_MODEL="offline", **cold))["bytecode"]

    assert (compiled[0], level) == ("ok", "warning")
    assert "-m compileall -q " in detail
