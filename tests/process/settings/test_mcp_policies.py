"""MCP servers that settings forbid are never started, wherever they are declared."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.helpers.paths import MCP_SERVERS
from tests.helpers.policies import Json, Machine, Run, calls, control


def server(machine: Machine, name: str) -> Json:
    """A server that leaves a file when it is started."""
    mark = machine.folder / f"started-{name}"
    code = f"import pathlib,runpy,sys; pathlib.Path({str(mark)!r}).touch(); sys.argv[1:] = ['well']; "
    code += f"runpy.run_path({str(MCP_SERVERS / 'plain.py')!r}, run_name='__main__')"
    return {"command": sys.executable, "args": ["-c", code]}


def started(machine: Machine) -> set[str]:
    return {path.name.removeprefix("started-") for path in machine.folder.glob("started-*")}


def config(**servers: Json) -> str:
    return json.dumps({"mcpServers": servers})


def states(done: Run) -> dict[str, str]:
    return {row["name"]: row["status"] for row in done.init["mcp_servers"]}


def test_a_denied_server_is_not_started(machine: Machine) -> None:
    good, bad = server(machine, "good"), server(machine, "bad")

    done = machine.run(
        "--mcp-config",
        config(good={**good, "required": True}, bad=bad),
        managed={"deniedMcpServers": [{"serverName": "bad"}]},
    )

    assert started(machine) == {"good"}
    assert states(done) == {"good": "connected", "bad": "failed"}
    assert "the MCP server 'bad' is not used: the settings do not allow this server (deniedMcpServers)" in done.stderr


def test_a_denied_server_of_the_users_own_file_is_not_started(machine: Machine) -> None:
    servers = {"good": {**server(machine, "good"), "required": True}, "bad": server(machine, "bad")}
    machine.write("config/.claude.json", {"mcpServers": servers})

    done = machine.run("--setting-sources", "user", managed={"deniedMcpServers": [{"serverName": "bad"}]})

    assert started(machine) == {"good"}
    assert states(done) == {"good": "connected", "bad": "failed"}


@pytest.mark.parametrize("layer", ["user", "settings", "managed"])
def test_any_layer_may_deny_a_server(machine: Machine, layer: str) -> None:
    given: Any = {layer: {"deniedMcpServers": [{"serverName": "bad"}]}}

    machine.run("--mcp-config", config(bad=server(machine, "bad")), **given)

    assert started(machine) == set()


def test_a_server_is_denied_by_its_command(machine: Machine) -> None:
    bad = server(machine, "bad")

    machine.run(
        "--mcp-config",
        config(other=bad),
        managed={"deniedMcpServers": [{"serverCommand": [bad["command"], *bad["args"]]}]},
    )

    assert started(machine) == set()


def test_only_allowed_servers_are_started(machine: Machine) -> None:
    machine.write("config/settings.json", {"mcpServers": {"mine": server(machine, "mine")}})
    given = config(good={**server(machine, "good"), "required": True}, bad=server(machine, "bad"))

    done = machine.run("--mcp-config", given, managed={"allowedMcpServers": [{"serverName": "good"}]})

    assert started(machine) == {"good"}
    assert states(done) == {"good": "connected", "bad": "failed", "mine": "failed"}


def test_an_allowed_command_must_match_whole(machine: Machine) -> None:
    good, bad = server(machine, "good"), server(machine, "bad")
    allowed = [{"serverCommand": [good["command"], *good["args"]]}, {"serverName": "bad"}]

    machine.run("--mcp-config", config(a={**good, "required": True}, bad=bad), managed={"allowedMcpServers": allowed})

    assert started(machine) == {"good"}


def test_users_extend_the_list_unless_only_the_managed_one_counts(machine: Machine) -> None:
    given, user = (
        config(mine={**server(machine, "mine"), "required": True}),
        {"allowedMcpServers": [{"serverName": "mine"}]},
    )
    managed: Json = {"allowedMcpServers": [], "allowManagedMcpServersOnly": True}

    machine.run("--mcp-config", given, managed=managed, user=user)
    assert started(machine) == set()

    machine.run("--mcp-config", given, managed={"allowedMcpServers": []}, user=user)
    assert started(machine) == {"mine"}


def test_a_project_cannot_extend_the_list(machine: Machine) -> None:
    machine.write(".claude/settings.json", {"allowedMcpServers": [{"serverName": "bad"}]})

    machine.run(
        *("--setting-sources", "user,project", "--mcp-config", config(bad=server(machine, "bad"))),
        managed={"allowedMcpServers": []},
    )

    assert started(machine) == set()


def test_a_server_that_the_client_adds_is_checked(machine: Machine) -> None:
    wanted = control("mcp_set_servers", servers={"bad": server(machine, "bad")})

    done = machine.run(managed={"allowedMcpServers": []}, send=(wanted,))

    (answer,) = done.of("control_response")
    assert answer["response"]["response"]["errors"] == {
        "bad": "the settings do not allow this server (allowedMcpServers)"
    }
    assert started(machine) == set()


def test_a_server_of_the_client_itself_is_checked(machine: Machine) -> None:
    hello = control("initialize", sdkMcpServers=["inside"])

    done = machine.run(managed={"deniedMcpServers": [{"serverName": "inside"}]}, send=(hello,))

    assert states(done) == {"inside": "failed"}
    assert not done.of("control_request")


def test_a_server_of_a_plugin_is_checked(machine: Machine) -> None:
    machine.write("plugin/.claude-plugin/plugin.json", {"name": "tools"})
    machine.write("plugin/.mcp.json", {"mcpServers": {"bad": server(machine, "bad")}})

    machine.run("--plugin-dir", str(machine.work / "plugin"), managed={"allowedMcpServers": []})

    assert started(machine) == set()


def test_a_server_of_an_agent_is_checked(machine: Machine) -> None:
    agent = {"description": "d", "prompt": "p", "mcpServers": [{"bad": server(machine, "bad")}]}
    call = ("Agent", {"description": "d", "prompt": "p", "subagent_type": "helper"})

    machine.run("--agents", json.dumps({"helper": agent}), managed={"allowedMcpServers": []}, script=calls(call))

    assert started(machine) == set()


@pytest.mark.parametrize(
    ("pattern", "url", "allowed"),
    [
        ("https://*.example.com/*", "https://a.example.com/mcp", True),
        ("https://*.example.com/*", "https://A.EXAMPLE.com:443/mcp", True),
        ("https://*.example.com/*", "https://evil.net/.example.com/mcp", False),
        ("https://*.example.com/*", "https://a.example.com@evil.net/mcp", False),
        ("https://*.example.com/*", "http://a.example.com/mcp", False),
        ("https://example.com/team/*", "https://example.com/team/../other", False),
        ("https://example.com/*", "https://example.com:8443/mcp", False),
        ("https://example.com:*/*", "https://example.com:8443/mcp", True),
    ],
)
def test_a_url_is_allowed_only_if_it_matches_for_certain(
    machine: Machine, pattern: str, url: str, allowed: bool
) -> None:
    done = machine.run(
        *("--offline", "--mcp-config", config(far={"type": "http", "url": url})),
        managed={"allowedMcpServers": [{"serverUrl": pattern}]},
    )

    assert ("the settings do not allow this server" not in done.stderr) is allowed


@pytest.mark.parametrize(
    "url",
    ["https://a.example.com/mcp", "HTTPS://A.Example.com./mcp", "https://u@a.example.com:443/mcp?x=1", "https://[bad"],
)
def test_a_url_is_denied_in_every_spelling(machine: Machine, url: str) -> None:
    done = machine.run(
        *("--offline", "--mcp-config", config(far={"type": "http", "url": url})),
        managed={"deniedMcpServers": [{"serverUrl": "https://*.example.com/*"}]},
    )

    assert states(done) == {"far": "failed"}
    assert "deniedMcpServers" in done.stderr or "invalid MCP server" in done.stderr


def test_managed_servers_are_there_also_with_a_strict_configuration(machine: Machine) -> None:
    managed: Json = {
        "managedMcpServers": {"ours": {"type": "http", "url": "https://mcp.example.com/"}},
        "allowedMcpServers": [],
    }

    done = machine.run("--offline", "--strict-mcp-config", managed=managed)

    assert list(states(done)) == ["ours"]
    assert "the settings do not allow this server" not in done.stderr


def test_a_managed_server_must_not_name_a_program(machine: Machine) -> None:
    done = machine.run(managed={"managedMcpServers": {"ours": server(machine, "ours")}})

    assert done.result["startup_failure_reason"] == "managed_settings_invalid"
    assert started(machine) == set()


def test_sideloading_flags_are_refused(machine: Machine) -> None:
    managed = {"disableSideloadFlags": True}
    machine.write("plugin/.claude-plugin/plugin.json", {"name": "tools"})
    flags = {
        "--mcp-config": config(bad=server(machine, "bad")),
        "--agents": json.dumps({"helper": {"description": "d", "prompt": "p"}}),
        "--plugin-dir": str(machine.work / "plugin"),
    }
    for flag, value in flags.items():
        done = machine.run(flag, value, managed=managed)

        [error] = done.result["errors"]
        assert flag in error
        assert error.endswith("disabled by managed settings (disableSideloadFlags)")
    assert started(machine) == set()

    of_client = machine.run("--mcp-config", config(mine={"type": "sdk", "name": "mine"}), managed=managed)
    assert of_client.result["result"] == "Hello."


def test_the_users_settings_approve_servers_of_a_project(machine: Machine) -> None:
    servers = {name: {**server(machine, name), "required": True} for name in ("one", "two")}
    machine.write(".mcp.json", {"mcpServers": servers})

    machine.run()
    assert started(machine) == set()

    machine.run(user={"enabledMcpjsonServers": ["one"]})
    assert started(machine) == {"one"}

    machine.run(user={"enableAllProjectMcpServers": True, "disabledMcpjsonServers": []})
    assert started(machine) == {"one", "two"}
