"""`--await-initialize`: plugins, MCP servers and managed settings of the handshake, through the real executable."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import paths

Json = dict[str, Any]
STREAM = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--model", "offline")
AWAIT = (*STREAM, "--await-initialize")
MANAGED = (*AWAIT, "--managed-settings-in-initialize")


def lines(*messages: Json) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def initialize(**fields: Any) -> Json:
    return {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize", **fields}}


def user(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


def received(done: Any) -> list[Json]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def plugin(folder: Path, name: str) -> Json:
    place = folder / name
    (place / ".claude-plugin").mkdir(parents=True)
    (place / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": name}))
    (place / "commands").mkdir()
    (place / "commands" / "hello.md").write_text("Say hello.")
    (place / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": {"command": "/no/such/program"}}}))
    return {"type": "local", "path": f"./{name}"}


def test_plugins_of_the_handshake_are_loaded(tmp_path: Path, run: Any) -> None:
    plugins = [plugin(tmp_path, "one"), {**plugin(tmp_path, "two"), "skipMcpDiscovery": True}]

    done = run(*AWAIT, stdin=lines(initialize(plugins=plugins), user("say Hi")))

    answer, *rest = received(done)
    assert answer["response"]["response"]["plugins_applied"] is True
    init = next(line for line in rest if line.get("subtype") == "init")
    assert [one["name"] for one in init["plugins"]] == ["one", "two"]
    assert {"one:hello", "two:hello"} <= set(init["slash_commands"])
    assert len(init["mcp_servers"]) == 1
    assert rest[-1]["result"] == "Hi"


def test_a_plugin_that_is_not_there_is_reported(run: Any) -> None:
    done = run(*AWAIT, stdin=lines(initialize(plugins=[{"type": "local", "path": "gone"}]), user("say Hi")))

    answer, *rest = received(done)
    assert answer["response"]["response"]["plugins_applied"] is False
    assert rest[-1]["result"] == "Hi"
    assert "gone" in done.stderr


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (lines(user("say Hi")), "another message"),
        ("not JSON\n", "refused"),
        (
            lines({"type": "control_request", "request_id": "1", "request": {"subtype": "interrupt"}}),
            "another message",
        ),
    ],
)
def test_another_first_line_fails_the_start(run: Any, stdin: str, says: str) -> None:
    done = run(*AWAIT, stdin=stdin)

    [result] = received(done)
    assert done.returncode == 1
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
    assert result["startup_failure_reason"] == "initialize_not_first"
    assert says in result["errors"][0]
    assert "--await-initialize" in done.stderr


def test_malformed_plugins_fail_the_start_and_name_the_field(run: Any) -> None:
    done = run(*AWAIT, stdin=lines(initialize(plugins="x")))

    [result] = received(done)
    assert done.returncode == 1
    assert "plugins" in result["errors"][0]


SERVERS = {"own": {"command": sys.executable, "args": [str(paths.MCP_SERVERS / "plain.py"), "well"]}}


def servers_applied(lines: list[Json]) -> list[Any]:
    answers = [line["response"]["response"] for line in lines if line["type"] == "control_response"]
    return [answer.get("mcp_servers_applied", "absent") for answer in answers]


def states(lines: list[Json]) -> Json:
    init = next(line for line in lines if line.get("subtype") == "init")
    return {one["name"]: one["status"] for one in init["mcp_servers"]}


def test_servers_of_the_handshake_are_used(run: Any) -> None:
    again = {"own": dict(reversed(SERVERS["own"].items()))}
    other = {"other": SERVERS["own"]}

    done = run(
        *(*AWAIT, "--strict-mcp-config", "--allowedTools", "mcp__own"),
        stdin=lines(
            initialize(mcpServers=SERVERS),
            user('call mcp__own__echo {"a": 1}'),
            initialize(mcpServers=again),
            initialize(mcpServers=other),
            initialize(),
        ),
    )

    told = received(done)
    assert states(told) == {"own": "connected"}
    assert servers_applied(told) == [True, True, False, "absent"]
    [result] = [line["message"]["content"][0] for line in told if line["type"] == "user"]
    assert result["content"] == [{"type": "text", "text": '{"a": 1}'}]
    assert "mcp_set_servers" in done.stderr  # for the other servers


def test_servers_of_another_handshake_are_not_read_and_reported(run: Any) -> None:
    for options in (STREAM, (*AWAIT, "--safe-mode")):
        done = run(*options, stdin=lines(initialize(mcpServers=SERVERS), user("say Hi")))

        told = received(done)
        assert (servers_applied(told), states(told)) == ([False], {})
        assert "initialize.mcpServers has no effect" in done.stderr


def test_servers_of_the_handshake_obey_the_policy(run: Any) -> None:
    denied = {"deniedMcpServers": [{"serverName": "own"}]}
    done = run(*MANAGED, stdin=lines(initialize(mcpServers=SERVERS, managedSettings=denied), user("say Hi")))
    assert states(received(done)) == {"own": "failed"}

    locked = {"strictPluginOnlyCustomization": ["mcp"]}
    done = run(*MANAGED, stdin=lines(initialize(mcpServers=SERVERS, managedSettings=locked), user("say Hi")))
    assert done.returncode == 1
    assert "initialize are disabled by managed settings (strictPluginOnlyCustomization)" in done.stderr


def test_malformed_servers_fail_the_start_and_one_malformed_server_does_not(run: Any) -> None:
    done = run(*AWAIT, stdin=lines(initialize(mcpServers=["x"])))
    assert (done.returncode, "mcpServers" in received(done)[0]["errors"][0]) == (1, True)

    done = run(*AWAIT, stdin=lines(initialize(mcpServers={**SERVERS, "odd": 5}), user("say Hi")))
    assert servers_applied(received(done)) == [True]
    assert states(received(done)) == {"own": "connected", "odd": "failed"}


def test_a_client_that_says_nothing_ends_the_session(run: Any) -> None:
    done = run(*AWAIT, stdin="")

    assert (done.returncode, done.stdout) == (0, "")


def test_a_first_line_without_its_end_is_read(run: Any) -> None:
    done = run(*AWAIT, stdin=lines(initialize()).rstrip("\n"))

    assert [line["type"] for line in received(done)] == ["control_response"]


def test_managed_settings_of_the_handshake_are_enforced(run: Any) -> None:
    settings = {"permissions": {"deny": ["Bash"], "disableBypassPermissionsMode": "disable"}}

    done = run(
        *MANAGED,
        *("--permission-mode", "bypassPermissions", "--allow-dangerously-skip-permissions"),
        stdin=lines(
            initialize(managedSettings=settings),
            {"type": "control_request", "request_id": "r2", "request": {"subtype": "list_permission_rules"}},
            user('call Bash {"command": "touch made"}'),
        ),
        IS_SANDBOX="1",
    )

    told = received(done)
    rules = next(line for line in told if line.get("response", {}).get("request_id") == "r2")
    [rule] = rules["response"]["response"]["state"]["rules"]
    assert (rule["rule"], rule["behavior"], rule["source"]) == ("Bash", "deny", "policySettings")
    init = next(line for line in told if line.get("subtype") == "init")
    assert "Bash" not in init["tools"]
    assert init["permissionMode"] == "default"


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (MANAGED, initialize()),
        (MANAGED, initialize(managedSettings=None)),
        (MANAGED, initialize(managedSettings=[])),
        (MANAGED, initialize(managedSettings={}, plugins="x")),
        (MANAGED, user("say Hi")),
        (MANAGED, None),
        ((*STREAM, "--managed-settings-in-initialize"), initialize(managedSettings={})),
        ((*MANAGED, "--managed-settings", "{}"), initialize(managedSettings={})),
    ],
)
def test_managed_settings_that_do_not_arrive_stop_the_start(
    run: Any, options: tuple[str, ...], first: Json | None
) -> None:
    done = run(*options, stdin="" if first is None else lines(first, user("say Hi")))

    [result] = received(done)
    assert done.returncode == 1
    assert result["startup_failure_reason"] == "managed_settings_not_delivered"


def test_a_repeated_handshake_cannot_change_managed_settings(run: Any) -> None:
    settings = {"permissions": {"deny": ["Bash"]}}
    again = initialize(managedSettings={"permissions": {}})

    done = run(*MANAGED, stdin=lines(initialize(managedSettings=settings), initialize(managedSettings=settings), again))

    assert [line["response"]["subtype"] for line in received(done)] == ["success", "success", "error"]
