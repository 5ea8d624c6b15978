"""The commands that programs call to manage an installation: what is not there is an empty list, not an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

OFFLINE = {"ANTHROPIC_MODEL": "offline"}
EMPTY: dict[str, Any] = {
    "agents --json": [],
    "agents --json --all --cwd .": [],
    "auto-mode config": {"allow": [], "soft_deny": [], "hard_deny": [], "environment": []},
    "auto-mode defaults": {"allow": [], "soft_deny": [], "hard_deny": [], "environment": []},
    "mcp list --json": [],
    "plugin list --json": [],
    "plugin list --json --available": {"installed": [], "available": []},
    "plugin marketplace list --json": [],
}
NOTHING = {
    "auth logout": "Not logged in",
    "plugin disable --all": "✔ Disabled 0 plugins",
    "plugin list --available": "No plugins installed",
    "plugin prune --dry-run -y": "✔ Nothing to prune (no auto-installed plugins at user scope).",
    "plugin autoremove": "✔ Nothing to prune",
    "plugin marketplace update": "✔ Successfully updated no marketplaces",
}


@pytest.mark.parametrize("words", EMPTY)
def test_a_list_with_nothing_in_it_is_empty(run: Any, words: str) -> None:
    done = run(*words.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == EMPTY[words]


@pytest.mark.parametrize("words", NOTHING)
def test_a_command_with_nothing_to_do_succeeds(run: Any, words: str) -> None:
    done = run(*words.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(NOTHING[words])


def test_a_background_session_is_refused_instead_of_run(run: Any) -> None:
    done = run("--bg", "--", "say Hi", **OFFLINE)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: --bg is not available: Parley has no background sessions")


def test_agents_without_json_is_not_available(run: Any) -> None:
    done = run("agents")

    assert (done.returncode, done.stdout) == (1, "")
    assert "Parley has no background sessions" in done.stderr


def test_auto_mode_reset_removes_the_section(run: Any) -> None:
    run("config", "set", "autoMode.allow", '["x"]')

    assert run("auto-mode", "reset", "-y").returncode == 0
    assert run("config", "get", "autoMode").stderr == "Error: autoMode is not set\n"


@pytest.mark.parametrize("command", [("purge",), ("project", "purge")])
def test_purge_deletes_the_sessions_of_a_directory(run: Any, tmp_path: Path, command: tuple[str, ...]) -> None:
    for _ in range(2):
        run("say Hi", **OFFLINE)
    other = run(*command, str(tmp_path / "other"), "--yes")
    assert (other.returncode, other.stderr) == (1, f"Error: no sessions of {tmp_path / 'other'}\n")

    unsure = run(*command)
    assert (unsure.returncode, unsure.stderr.startswith("Error: nothing was deleted")) == (1, True)
    assert run(*command, "--dry-run").stdout.endswith("Would delete 2 sessions\n")
    assert len(run("sessions", "list", "--json").stdout.splitlines()) == 2

    assert run(*command, str(tmp_path), "--yes").stdout.endswith("Deleted 2 sessions\n")
    assert run("sessions", "list", "--json").stdout == ""


def test_details_show_what_a_plugin_contains(run: Any, tmp_path: Path) -> None:
    plugin = tmp_path / "plug"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "plug", "version": "1.2.3"}')
    (plugin / "commands").mkdir()
    (plugin / "commands" / "greet.md").write_text("Say hello.")
    run("plugin", "install", str(plugin))

    lines = run("plugin", "details", "plug").stdout.splitlines()
    assert lines[0] == "plug 1.2.3"
    assert "  commands (1)  plug:greet" in lines
    assert json.loads(run("plugin", "details", "plug", "--json").stdout)["provides"]["commands"] == ["plug:greet"]
    missing = run("plugin", "details", "x")
    assert (missing.returncode, missing.stderr.startswith('Error: Plugin "x" is not installed')) == (1, True)

    assert run("plugin", "disable", "--all").stdout == "✔ Disabled 1 plugin\n"
    assert json.loads(run("plugin", "list", "--json").stdout)[0]["enabled"] is False
    done = json.loads(run("plugin", "uninstall", "plug", "--keep-data", "-y", "--json").stdout)
    assert (done["command"], done["outcome"]) == ("uninstall", "ok")


def test_a_strict_validation_fails_after_a_warning(run: Any, tmp_path: Path) -> None:
    (tmp_path / "plug" / ".claude-plugin").mkdir(parents=True)
    (tmp_path / "plug" / ".claude-plugin" / "plugin.json").write_text('{"name": "plug", "outputStyles": "./styles"}')

    lax, strict = (run("plugin", "validate", "plug", "--json", *flag) for flag in ((), ("--strict",)))
    reports = [json.loads(done.stdout) for done in (lax, strict)]
    assert all(report["manifest"]["warnings"] for report in reports)
    assert [(report["success"], report["strict"]) for report in reports] == [(True, False), (False, True)]
    assert (lax.returncode, strict.returncode) == (0, 1)


def test_the_login_of_a_server_is_deleted(run: Any, tmp_path: Path) -> None:
    run("mcp", "add", "far", "--transport", "http", "http://127.0.0.1:1/mcp")
    run("mcp", "add", "near", "program")

    assert json.loads(run("mcp", "logout", "far", "--json").stdout) == {"name": "far"}
    near, unknown = run("mcp", "logout", "near"), run("mcp", "logout", "x")
    assert (near.returncode, "is not a remote server" in near.stderr) == (1, True)
    assert (unknown.returncode, unknown.stderr) == (
        1,
        'Error: No MCP server named "x". Configured servers: far, near\n',
    )
