"""Plugins in folders: which parts are loaded, and which errors are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.protocol.messages.requests import AgentDefinition
from parley.settings.base import Plugin, Plugins, SettingsValue
from parley.settings.files.plugins import load_plugins

HOOKS = {"Stop": [{"hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/stop.sh"}]}]}


def put(folder: Path, name: str, values: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(values if isinstance(values, str) else json.dumps(values))


def manifest(folder: Path, **values: Any) -> str:
    put(folder, ".claude-plugin/plugin.json", {"name": "kit", **values})
    return str(folder)


def load(folder: str, **options: Any) -> Plugins:
    return load_plugins({folder: Path(folder, "..", "data")}, **options)


def hooked(folder: str) -> SettingsValue:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": f"{folder}/stop.sh"}]}]}
    return SettingsValue(value=hooks, source="flag", path=f"{folder}/hooks/hooks.json", root=folder)


@pytest.mark.parametrize(
    "said", [{}, {"hooks": HOOKS}, {"hooks": {"hooks": HOOKS}}, {"hooks": "./hooks/hooks.json"}], ids=str
)
def test_hooks_stand_in_the_manifest_or_in_a_file(tmp_path: Path, said: dict[str, Any]) -> None:
    folder = manifest(tmp_path, **said)
    put(tmp_path, "hooks/hooks.json", {"hooks": HOOKS})
    assert load(folder).found == (Plugin(name="kit", path=folder, hooks=hooked(folder)),)


def test_servers_have_the_plugins_name_before_theirs_and_its_folder_in_them(tmp_path: Path) -> None:
    folder = manifest(tmp_path, version="2")
    put(tmp_path, ".mcp.json", {"mcpServers": {"git": {"command": "${CLAUDE_PLUGIN_ROOT}/git", "args": ["x"]}}})
    [plugin] = load(folder).found
    assert plugin.servers == {"plugin:kit:git": {"command": f"{folder}/git", "args": ["x"]}}
    assert plugin.json() == {"name": "kit", "path": folder, "version": "2"}
    [plugin] = load(folder, without_servers=[folder]).found
    assert plugin.servers == {}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"hooks": "../outside.json"}, ("hooks-invalid", "../outside.json: must be a path inside the plugin")),
        ({"hooks": "/etc/passwd"}, ("hooks-invalid", "/etc/passwd: must be a path inside the plugin")),
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
    found = load(folder)
    assert [plugin.name for plugin in found.found] == ["kit"]
    [error] = found.errors
    assert error["type"] == told[0]
    assert error["message"].startswith(told[1])


@pytest.mark.parametrize("text", ["{", "[]", '{"name": 3}', '{"name": "a/b"}', '{"name": "a..b"}', "{}"])
def test_a_broken_manifest_makes_no_plugin(tmp_path: Path, text: str) -> None:
    put(tmp_path, ".claude-plugin/plugin.json", text)
    found = load(str(tmp_path))
    assert found.found == ()
    assert [error["type"] for error in found.errors] == ["manifest-validation-error"]


def test_a_plugin_brings_agents_under_its_name_but_not_what_would_act(tmp_path: Path) -> None:
    folder = manifest(tmp_path)
    put(tmp_path, "agents/reviewer.md", "---\ndescription: R\nmodel: haiku\n---\nYou review.")
    put(tmp_path, "agents/eager.md", "---\ndescription: E\npermissionMode: bypassPermissions\n---\nYou rush.")
    put(tmp_path, "agents/broken.md", "You have no head.")
    found = load(folder)
    [plugin] = found.found
    assert plugin.agents == {
        "kit:eager": AgentDefinition(description="E", prompt="You rush."),
        "kit:reviewer": AgentDefinition(description="R", prompt="You review.", model="haiku"),
    }
    assert [error["message"] for error in found.errors] == [
        "agents/broken.md: not used as an agent: `description` is missing or not a string",
        "agents/eager.md: permissionMode has no effect: an agent of a plugin cannot set it",
    ]


SCHEMA = "https://agent-plugins.org/schemas/1.0.0"


def portable(folder: Path, **values: Any) -> str:
    put(folder, "plugin.json", {"$schema": f"{SCHEMA}/plugin.schema.json", "name": "acme.tools", **values})
    return str(folder)


def servers(folder: Path, **entries: Any) -> None:
    put(folder, "mcp.json", {"$schema": f"{SCHEMA}/mcp.schema.json", "mcpServers": entries})


def test_a_portable_manifest_makes_a_plugin_and_what_it_does_not_know_is_reported(tmp_path: Path) -> None:
    folder = portable(tmp_path, version="not semver", author={"name": "A"}, extensions=3, hooks="x.json", homepage="?")
    put(tmp_path, "hooks/hooks.json", {"hooks": HOOKS})
    put(tmp_path, ".mcp.json", {"mcpServers": {"of-claude-code": {"command": "x"}}})
    found = load(folder)
    [plugin] = found.found
    assert (plugin.name, plugin.version, plugin.is_portable) == ("acme.tools", "not semver", True)
    assert (plugin.hooks, plugin.servers) == (hooked(folder), {})
    assert [error["message"] for error in found.errors] == [
        "plugin.json: `extensions` must be an object; ignored",
        "plugin.json: unknown fields are ignored: 'hooks'",
    ]


@pytest.mark.parametrize(
    "said",
    [
        *(
            {"name": name}
            for name in ("My-Plugin", "-start", "a--b", "a..b", "", "a" * 65, "end.", 3, None, "ä", "a/b")
        ),
        *({"$schema": f"https://agent-plugins.org/schemas/{version}/plugin.schema.json"} for version in ("1.1.0", "0")),
        {"version": 1},
        {"keywords": [1]},
        {"author": "me"},
        {"author": {"name": "me", "phone": "1"}},
    ],
    ids=str,
)
def test_a_portable_manifest_with_a_wrong_field_makes_no_plugin(tmp_path: Path, said: dict[str, Any]) -> None:
    found = load(portable(tmp_path, **said))
    assert found.found == ()
    assert [error["type"] for error in found.errors] == ["manifest-validation-error"]


def test_portable_servers_have_their_folder_their_data_and_no_other_variables(tmp_path: Path) -> None:
    folder = portable(tmp_path / "kit")
    args = ["${PLUGIN_ROOT}/a", "${PLUGIN_DATA}", "${HOME}", "${${PLUGIN_ROOT}}"]
    servers(
        tmp_path / "kit",
        local={"type": "stdio", "command": "./bin/x", "args": args, "env": {"A": "${PLUGIN_DATA}/b"}},
        data={"type": "stdio", "command": "npx", "cwd": "${PLUGIN_DATA}/work"},
        remote={"type": "streamable-http", "url": "https://example.com/mcp", "headers": {"X": "${HOME}"}},
    )
    [plugin] = load(folder).found
    data = plugin.data
    values = {"PLUGIN_ROOT": folder, "PLUGIN_DATA": data}
    assert plugin.servers == {
        "plugin:acme.tools:local": {
            "type": "stdio",
            "command": f"{folder}/bin/x",
            "args": [f"{folder}/a", data, "${HOME}", f"${{{folder}}}"],
            "env": {"A": f"{data}/b", **values},
            "cwd": folder,
            "literal": True,
        },
        "plugin:acme.tools:data": {
            "type": "stdio",
            "command": "npx",
            "args": [],
            "env": values,
            "cwd": str(Path(data).resolve() / "work"),
            "literal": True,
        },
        "plugin:acme.tools:remote": {
            "type": "streamable-http",
            "url": "https://example.com/mcp",
            "headers": {"X": "${HOME}"},
            "literal": True,
        },
    }


@pytest.mark.parametrize(
    "entry",
    [
        *(
            {"type": "stdio", "command": command}
            for command in ("../x", "/bin/sh", "sh -c x", "", "./../x", "./out", 3)
        ),
        *({"type": "stdio", "command": "x", "cwd": cwd} for cwd in ("data", "/", "../", "./..", "${HOME}", "./out/y")),
        *({"type": "stdio", "command": "x", "env": {name: "y"}} for name in ("PLUGIN_ROOT", "PLUGIN_DATA")),
        {"type": "stdio", "command": "x", "cwd": "${PLUGIN_DATA}/../other"},
        {"type": "stdio", "command": "x", "url": "https://example.com"},
        {"type": "stdio", "command": "x", "timeout": 3},
        {"command": "x"},
        {"type": "http", "url": "https://example.com"},
        *(
            {"type": "sse", "url": url}
            for url in (
                "http://example.com",
                "https://u:p@example.com",
                "https://example.com/#a",
                "/x",
                "ftp://x",
                "https://[",
            )
        ),
        {"type": "sse", "url": "https://example.com", "headers": {"A": "1", "a": "2"}},
        "x",
    ],
    ids=str,
)
def test_an_invalid_portable_server_costs_itself(tmp_path: Path, entry: Any) -> None:
    folder = portable(tmp_path / "kit")
    (tmp_path / "kit" / "out").symlink_to("/usr")
    servers(tmp_path / "kit", bad=entry, good={"type": "stdio", "command": "x"})
    found = load(folder)
    assert list(found.found[0].servers) == ["plugin:acme.tools:good"]
    [error] = found.errors
    assert (error["type"], "server 'bad'" in error["message"]) == ("mcpServers-invalid", True)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"mcpServers": {}}',
        json.dumps({"$schema": "https://agent-plugins.org/schemas/1.1.0/mcp.schema.json", "mcpServers": {}}),
    ],
)
def test_an_invalid_portable_server_file_costs_the_servers(tmp_path: Path, text: str) -> None:
    folder = portable(tmp_path)
    put(tmp_path, "mcp.json", text)
    found = load(folder)
    assert [plugin.servers for plugin in found.found] == [{}]
    assert [error["type"] for error in found.errors] == ["mcpServers-invalid"]


def test_a_plugin_with_both_manifests_has_the_portable_name_and_the_servers_of_both(tmp_path: Path) -> None:
    folder = manifest(tmp_path, name="old-name", version="1", mcpServers={"one": {"command": "x"}})
    portable(tmp_path, version="2")
    servers(tmp_path, two={"type": "stdio", "command": "y"})
    [plugin] = load(folder).found
    assert (plugin.name, plugin.version, plugin.is_portable) == ("acme.tools", "2", False)
    assert list(plugin.servers) == ["plugin:acme.tools:one", "plugin:acme.tools:two"]

    put(tmp_path, "plugin.json", {"name": "of another program"})
    [plugin] = load(folder).found
    assert (plugin.name, list(plugin.servers)) == ("old-name", ["plugin:old-name:one"])
