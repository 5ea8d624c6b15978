"""Plugins in folders: which parts are loaded, and which errors are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.protocol.messages.requests import AgentDefinition
from parley.settings.base import Plugin, SettingsValue
from parley.settings.files.plugins import load_plugins

HOOKS = {"Stop": [{"hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/stop.sh"}]}]}


def put(folder: Path, name: str, values: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))


def manifest(folder: Path, **values: Any) -> str:
    put(folder, ".claude-plugin/plugin.json", {"name": "kit", **values})
    return str(folder)


def hooked(folder: str) -> SettingsValue:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": f"{folder}/stop.sh"}]}]}
    return SettingsValue(value=hooks, source="flag", path=f"{folder}/hooks/hooks.json", root=folder)


@pytest.mark.parametrize(
    "said", [{}, {"hooks": HOOKS}, {"hooks": {"hooks": HOOKS}}, {"hooks": "./hooks/hooks.json"}], ids=str
)
def test_hooks_stand_in_the_manifest_or_in_a_file(tmp_path: Path, said: dict[str, Any]) -> None:
    folder = manifest(tmp_path, **said)
    put(tmp_path, "hooks/hooks.json", {"hooks": HOOKS})
    assert load_plugins([folder]).found == (Plugin(name="kit", path=folder, hooks=hooked(folder)),)


def test_servers_have_the_plugins_name_before_theirs_and_its_folder_in_them(tmp_path: Path) -> None:
    folder = manifest(tmp_path, version="2")
    put(tmp_path, ".mcp.json", {"mcpServers": {"git": {"command": "${CLAUDE_PLUGIN_ROOT}/git", "args": ["x"]}}})
    [plugin] = load_plugins([folder]).found
    assert plugin.servers == {"plugin:kit:git": {"command": f"{folder}/git", "args": ["x"]}}
    assert plugin.json() == {"name": "kit", "path": folder, "version": "2"}
    [plugin] = load_plugins([], without_servers=[folder]).found
    assert plugin.servers == {}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"hooks": "../outside.json"}, ("hooks-invalid", "../outside.json: is a symbolic link to a file outside")),
        ({"hooks": "none.json"}, ("hooks-invalid", "none.json does not exist")),
        ({"hooks": 3}, ("hooks-invalid", ".claude-plugin/plugin.json: must be an object or the name of a file")),
        (
            {"mcpServers": "hooks/hooks.json"},
            ("mcpServers-invalid", "hooks/hooks.json: the file must contain an object 'mcpServers'"),
        ),
        ({"commands": ["./more"]}, ("not-heeded", ".claude-plugin/plugin.json: keys without effect: commands")),
    ],
)
def test_a_part_that_cannot_be_used_costs_itself(tmp_path: Path, said: dict[str, Any], told: tuple[str, str]) -> None:
    folder = manifest(tmp_path / "kit", **said)
    put(tmp_path, "outside.json", {"hooks": HOOKS})
    put(tmp_path, "kit/hooks/hooks.json", {"hooks": {}})
    found = load_plugins([folder])
    assert [plugin.name for plugin in found.found] == ["kit"]
    [error] = found.errors
    assert error["type"] == told[0]
    assert error["message"].startswith(told[1])


@pytest.mark.parametrize("text", ["{", "[]", '{"name": 3}', '{"name": "a/b"}', '{"name": "a..b"}', "{}"])
def test_a_broken_manifest_makes_no_plugin(tmp_path: Path, text: str) -> None:
    put(tmp_path, ".claude-plugin/plugin.json", text)
    found = load_plugins([str(tmp_path)])
    assert found.found == ()
    assert [error["type"] for error in found.errors] == ["manifest-validation-error"]


def test_a_plugin_brings_agents_under_its_name_but_not_what_would_act(tmp_path: Path) -> None:
    folder = manifest(tmp_path)
    put(tmp_path, "agents/reviewer.md", "---\ndescription: R\nmodel: haiku\n---\nYou review.")
    put(tmp_path, "agents/eager.md", "---\ndescription: E\npermissionMode: bypassPermissions\n---\nYou rush.")
    put(tmp_path, "agents/broken.md", "You have no head.")
    found = load_plugins([folder])
    [plugin] = found.found
    assert plugin.agents == {
        "kit:eager": AgentDefinition(description="E", prompt="You rush."),
        "kit:reviewer": AgentDefinition(description="R", prompt="You review.", model="haiku"),
    }
    assert [error["message"] for error in found.errors] == [
        "agents/broken.md: not used as an agent: `description` is missing or not a string",
        "agents/eager.md: permissionMode has no effect: an agent of a plugin cannot set it",
    ]
