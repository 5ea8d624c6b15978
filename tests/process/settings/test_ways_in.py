"""Managed keys hold for everything that reaches a session, whichever way it comes in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.paths import MCP_SERVERS
from tests.helpers.policies import Json, Machine, MessagesApi, Run, calls, control

SPAWN = calls(("Agent", {"description": "d", "prompt": "p", "subagent_type": "helper"}))
HOOK_LOCKS: list[Json] = [
    {"allowManagedHooksOnly": True},
    {"strictPluginOnlyCustomization": True},
    {"strictPluginOnlyCustomization": ["hooks"]},
    {"disableAllHooks": True},
]
SERVER_LOCKS: list[Json] = [
    {"allowedMcpServers": []},
    {"deniedMcpServers": [{"serverName": "bad"}]},
    {"strictPluginOnlyCustomization": True},
    {"strictPluginOnlyCustomization": ["mcp"]},
    {"disableSideloadFlags": True},
]


def touch(machine: Machine) -> Json:
    return {
        event: [{"hooks": [{"type": "command", "command": f"touch {machine.folder / 'happened'}"}]}]
        for event in ("UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "SessionStart")
    }


def server(machine: Machine) -> Json:
    """A server that leaves a file when it is started."""
    code = f"import pathlib,runpy,sys; pathlib.Path({str(machine.folder / 'happened')!r}).touch(); "
    code += f"sys.argv[1:] = ['well']; runpy.run_path({str(MCP_SERVERS / 'plain.py')!r}, run_name='__main__')"
    return {"command": sys.executable, "args": ["-c", code], "required": True}


def as_agent(fields: Json) -> Json:
    return {"helper": {"description": "d", "prompt": "p", **fields}}


def to_lines(value: Any, depth: int) -> str:
    """A value in the subset of YAML that frontmatter has."""
    if isinstance(value, dict):
        return "".join(f"\n{' ' * depth}{key}: {to_lines(each, depth + 4)}" for key, each in value.items())
    if isinstance(value, list) and isinstance(value[0], dict):
        return "".join(f"\n{' ' * depth}- {to_lines(each, depth + 2).strip()}" for each in value)
    return json.dumps(value)


def frontmatter(fields: Json) -> str:
    return f"---\nname: helper\ndescription: d{to_lines(fields, 0)}\n---\nPrompt"


def from_initialize(machine: Machine, managed: Json, fields: Json) -> Run:
    return machine.run(managed=managed, send=(control("initialize", agents=as_agent(fields)),), script=SPAWN)


def from_main_agent(machine: Machine, managed: Json, fields: Json) -> Run:
    send = (control("initialize", agents=as_agent(fields)),)
    return machine.run("--agent", "helper", managed=managed, send=send)


def from_flag(machine: Machine, managed: Json, fields: Json) -> Run:
    return machine.run("--agents", json.dumps(as_agent(fields)), managed=managed, script=SPAWN)


def from_user_file(machine: Machine, managed: Json, fields: Json) -> Run:
    machine.write("config/agents/helper.md", frontmatter(fields))
    return machine.run(managed=managed, script=SPAWN)


def from_project_file(machine: Machine, managed: Json, fields: Json) -> Run:
    machine.write(".claude/agents/helper.md", frontmatter(fields))
    return machine.run("--setting-sources", "user,project", managed=managed, script=SPAWN)


def from_settings(machine: Machine, managed: Json, fields: Json) -> Run:
    servers = fields.pop("mcpServers", None)
    more = {} if servers is None else {"mcpServers": servers[0]}
    return machine.run(managed=managed, settings={**fields, **more})


def from_control_request(machine: Machine, managed: Json, fields: Json) -> Run:
    if "mcpServers" in fields:
        send = (control("mcp_set_servers", servers=fields["mcpServers"][0]),)
    else:
        send = (control("apply_flag_settings", settings=fields),)
    return machine.run(managed=managed, send=send, until="result")


WAYS: list[Callable[[Machine, Json, Json], Run]] = [
    from_initialize,
    from_main_agent,
    from_flag,
    from_user_file,
    from_project_file,
    from_settings,
    from_control_request,
]


@pytest.mark.parametrize("managed", [{}, *HOOK_LOCKS], ids=json.dumps)
@pytest.mark.parametrize("way", WAYS)
def test_hooks(machine: Machine, way: Callable[[Machine, Json, Json], Run], managed: Json) -> None:
    way(machine, managed, {"hooks": touch(machine)})

    assert (machine.folder / "happened").exists() == (not managed)


@pytest.mark.parametrize("managed", [{}, *SERVER_LOCKS], ids=json.dumps)
@pytest.mark.parametrize("way", WAYS)
def test_servers(machine: Machine, way: Callable[[Machine, Json, Json], Run], managed: Json) -> None:
    # Files of the user and of a trusted project are not added by flags.
    is_permitted = not managed or ("disableSideloadFlags" in managed and way in (from_user_file, from_project_file))

    way(machine, managed, {"mcpServers": [{"bad": server(machine)}]})

    assert (machine.folder / "happened").exists() == is_permitted


@pytest.mark.parametrize(
    "managed",
    [{"disableSideloadFlags": True}, {"strictPluginOnlyCustomization": ["agents"]}],
    ids=json.dumps,
)
def test_agents_of_a_client_are_refused(machine: Machine, managed: Json) -> None:
    (key,) = managed
    agents = as_agent({})

    done = machine.run(managed=managed, send=(control("initialize", agents=agents),), script=SPAWN)
    (answer,) = done.of("control_response")
    assert answer["response"]["error"] == f"initialize.agents is disabled by managed settings ({key})"
    assert "helper" not in done.init["agents"]

    done = machine.run("--agents", json.dumps(agents), managed=managed)
    assert done.result["errors"] == [f"option '--agents' is disabled by managed settings ({key})"]


def test_plugins_of_a_client_are_not_loaded_if_marketplaces_are_restricted(machine: Machine) -> None:
    machine.write("plugin/.claude-plugin/plugin.json", {"name": "tools"})
    machine.write("plugin/hooks/hooks.json", {"hooks": touch(machine)})

    done = machine.run("--plugin-dir", str(machine.work / "plugin"), managed={"strictKnownMarketplaces": []})

    assert done.init["plugins"] == []
    assert not (machine.folder / "happened").exists()


@pytest.mark.parametrize("managed", [{"permissions": {"disableBypassPermissionsMode": "disable"}}], ids=json.dumps)
@pytest.mark.parametrize(
    ("argv", "send"),
    [
        (["--dangerously-skip-permissions"], ()),
        (["--permission-mode", "bypassPermissions"], ()),
        (["--allow-dangerously-skip-permissions"], (control("set_permission_mode", mode="bypassPermissions"),)),
        (["--agent", "helper"], (control("initialize", agents=as_agent({"permissionMode": "bypassPermissions"})),)),
        (["--settings", '{"permissions": {"defaultMode": "bypassPermissions"}}'], ()),
        (
            ["--allow-dangerously-skip-permissions"],
            (control("apply_flag_settings", settings={"permissions": {"defaultMode": "bypassPermissions"}}),),
        ),
    ],
)
def test_bypassing_permissions(machine: Machine, argv: list[str], send: Any, managed: Json) -> None:
    machine.run(
        *argv, managed=managed, send=send, script=calls(("Bash", {"command": "touch made", "description": "d"}))
    )

    assert not (machine.work / "made").exists()


@pytest.mark.parametrize(
    ("argv", "send"),
    [
        (["--allowedTools", "Bash"], ()),
        (["--settings", '{"permissions": {"allow": ["Bash"]}}'], ()),
        ([], (control("apply_flag_settings", settings={"permissions": {"allow": ["Bash"]}}),)),
    ],
)
def test_rules(machine: Machine, argv: list[str], send: Any) -> None:
    managed: Json = {"allowManagedPermissionRulesOnly": True}

    machine.run(
        *argv, managed=managed, send=send, script=calls(("Bash", {"command": "touch made", "description": "d"}))
    )

    assert not (machine.work / "made").exists()


OPUS = "claude-opus-4-5"
PROMPT_HOOK: Json = {"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "prompt", "prompt": "p", "model": OPUS}]}]}}
AGENT_CALL: Json = {
    "type": "tool_use",
    "id": "t1",
    "name": "Agent",
    "input": {"description": "d", "prompt": "p", "subagent_type": "helper"},
}


@pytest.mark.parametrize(
    "managed", [{"deniedModels": ["opus"]}, {"availableModels": ["sonnet", "haiku"], "enforceAvailableModels": True}]
)
@pytest.mark.parametrize(
    ("argv", "send", "environment"),
    [
        (["--model", OPUS], (), {}),
        ([], (), {"ANTHROPIC_MODEL": OPUS}),
        ([], (), {"ANTHROPIC_DEFAULT_SONNET_MODEL": OPUS}),
        ([], (), {"ANTHROPIC_SMALL_FAST_MODEL": OPUS}),
        (["--settings", json.dumps({"model": OPUS})], (), {}),
        (["--settings", json.dumps(PROMPT_HOOK)], (), {}),
        ([], (control("set_model", model=OPUS),), {}),
        ([], (control("apply_flag_settings", settings={"model": OPUS}),), {}),
        ([], (control("initialize", agents=as_agent({"model": OPUS})),), {}),
        (["--agent", "helper"], (control("initialize", agents=as_agent({"model": OPUS})),), {}),
        (["--agents", json.dumps(as_agent({"model": OPUS}))], (), {}),
        (["--agents", json.dumps(as_agent({"model": OPUS})), "--agent", "helper"], (), {}),
        (["--fallback-model", OPUS], (), {}),
    ],
)
def test_models(
    machine: Machine, api: MessagesApi, argv: list[str], send: Any, environment: Json, managed: Json
) -> None:
    api.answers = [[AGENT_CALL]]
    api.failures = {"claude-sonnet-4-5": 529} if "--fallback-model" in argv else {}
    keys: dict[str, Any] = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_MAX_RETRIES": "0"}

    machine.run(*argv, managed=managed, send=send, script=None, **keys, **environment)

    assert not [name for name in api.models if "opus" in name]


@pytest.mark.parametrize("folder", ["config/commands", ".claude/commands"])
def test_the_model_of_a_command(machine: Machine, api: MessagesApi, folder: str) -> None:
    machine.write(f"{folder}/go.md", f"---\nmodel: {OPUS}\n---\nText")
    keys: dict[str, Any] = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "k"}

    machine.run(
        "--setting-sources", "user,project", managed={"deniedModels": ["opus"]}, script=None, prompt="/go", **keys
    )

    assert not [name for name in api.models if "opus" in name]


ECHOES = calls(*[("Bash", {"command": f"echo {number}"}) for number in range(6)])


@pytest.mark.parametrize(
    ("key", "limit", "flag"),
    [
        ("maxTurns", 2, "--max-turns"),
        ("maxBudgetCalls", 2, "--max-budget-calls"),
        ("maxBudgetTokens", 2, "--max-budget-tokens"),
    ],
)
def test_limits(machine: Machine, key: str, limit: int, flag: str) -> None:
    managed: Json = {"limits": {key: limit}}

    alone = machine.run(managed=managed, script=ECHOES)
    higher = machine.run(flag, "100000", managed=managed, script=ECHOES)
    lower = machine.run(flag, "1", managed=managed, script=ECHOES)

    assert alone.result["is_error"]
    assert len(higher.outputs) == len(alone.outputs) <= limit
    assert len(lower.outputs) == 1


def test_limits_of_agents(machine: Machine) -> None:
    agents = {"helper": {"description": "d", "prompt": "p", "maxTurns": 100}}
    spawn = 'tools = [{ name = "Agent", input = { description = "d", prompt = "p", subagent_type = "helper" } }]'
    look = 'tools = [{ name = "Bash", input = { command = "echo a" } }]'
    script = f"[[turn]]\n{spawn}\n" + f"[[turn]]\n{look}\n" * 6

    def count(**given: Any) -> int:
        done = machine.run("--agents", json.dumps(agents), script=script, **given)
        return sum(line.get("parent_tool_use_id") is not None for line in done.of("assistant"))

    assert count(managed={"limits": {"maxTurns": 2}}) == 2 < count()


def test_rules_and_a_sandbox_that_allows_commands(machine: Machine) -> None:
    own = {"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}

    done = machine.run(managed={"allowManagedPermissionRulesOnly": True}, settings=own)

    assert (
        "sandbox.autoAllowBashIfSandboxed has no effect: managed settings leave this to no other layer" in done.stderr
    )
