"""What administrators reserve for themselves: hooks, rules, skills, agents, commands in skills, instructions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.policies import Json, Machine, MessagesApi, calls, control

TOUCH = calls(("Bash", {"command": "touch made", "description": "d"}))
ALLOW: Json = {"permissions": {"allow": ["Bash(touch made)"]}}


def hook(machine: Machine, name: str) -> Json:
    return {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": f"touch {machine.folder / name}"}]}]}


def ran(machine: Machine) -> set[str]:
    return {path.name for path in machine.folder.glob("hook-*")}


def test_only_managed_hooks_run(machine: Machine) -> None:
    machine.write("plugin/.claude-plugin/plugin.json", {"name": "tools"})
    machine.write("plugin/hooks/hooks.json", {"hooks": hook(machine, "hook-plugin")})
    machine.write(".claude/settings.json", {"hooks": hook(machine, "hook-project")})
    argv = ("--plugin-dir", str(machine.work / "plugin"), "--setting-sources", "user,project")
    given: Any = {"user": {"hooks": hook(machine, "hook-user")}, "settings": {"hooks": hook(machine, "hook-flag")}}

    machine.run(*argv, managed={"allowManagedHooksOnly": True, "hooks": hook(machine, "hook-managed")}, **given)
    assert ran(machine) == {"hook-managed"}

    machine.run(*argv, **given)
    assert ran(machine) == {"hook-managed", "hook-plugin", "hook-project", "hook-user", "hook-flag"}


def test_hooks_of_agents_do_not_run_if_only_managed_ones_may(machine: Machine) -> None:
    touch = [{"hooks": [{"type": "command", "command": f"touch {machine.folder / 'hook-agent'}"}]}]
    agents = json.dumps({"main": {"description": "d", "prompt": "p", "hooks": {"UserPromptSubmit": touch}}})

    machine.run("--agents", agents, "--agent", "main", managed={"allowManagedHooksOnly": True})
    assert ran(machine) == set()

    machine.run("--agents", agents, "--agent", "main")
    assert ran(machine) == {"hook-agent"}


def test_a_user_cannot_disable_managed_hooks(machine: Machine) -> None:
    user: Json = {"disableAllHooks": True, "hooks": hook(machine, "hook-user")}

    machine.run(user=user, managed={"hooks": hook(machine, "hook-managed")})

    assert ran(machine) == {"hook-managed"}


def test_an_administrator_disables_all_hooks(machine: Machine) -> None:
    machine.run(
        user={"hooks": hook(machine, "hook-user")},
        managed={"disableAllHooks": True, "hooks": hook(machine, "hook-managed")},
    )

    assert ran(machine) == set()


@pytest.mark.parametrize("where", ["user", "settings", "flag"])
def test_only_managed_rules_allow_calls(machine: Machine, where: str) -> None:
    argv = ("--allowedTools", "Bash(touch made)") if where == "flag" else ()
    given: Any = {} if where == "flag" else {where: ALLOW}

    done = machine.run(*argv, managed={"allowManagedPermissionRulesOnly": True}, script=TOUCH, **given)

    assert not (machine.work / "made").exists()
    assert done.outputs[0][0]
    if where == "flag":
        assert "option '--allowedTools' has no effect" in done.stderr


def test_managed_rules_and_denials_of_others_still_apply(machine: Machine) -> None:
    only: Json = {"allowManagedPermissionRulesOnly": True}

    machine.run(managed=only | ALLOW, user={"permissions": {"deny": ["Bash"]}}, script=TOUCH)
    assert not (machine.work / "made").exists()

    machine.write("config/settings.json", {})
    machine.run(managed=only | ALLOW, script=TOUCH)
    assert (machine.work / "made").exists()


def test_rules_that_the_client_approves_are_not_added(machine: Machine) -> None:
    update = {
        "type": "addRules",
        "behavior": "allow",
        "destination": "session",
        "rules": [{"toolName": "Bash", "ruleContent": "touch made"}],
    }
    touch = {"command": "touch made", "description": "d"}
    allow = {"behavior": "allow", "updatedInput": touch, "updatedPermissions": [update]}
    server = machine.write("ask.py", ASKING.replace("ANSWER", repr(json.dumps(allow))))
    config = json.dumps({"mcpServers": {"guard": {"command": "python3", "args": [str(server)], "required": True}}})

    done = machine.run(
        *("--mcp-config", config, "--permission-prompt-tool", "mcp__guard__approve"),
        managed={"allowManagedPermissionRulesOnly": True},
        script=calls(("Bash", touch), ("Bash", touch)),
    )

    assert [is_error for is_error, _ in done.outputs] == [False, False]
    assert (machine.work / "asked").read_text() == "xx"
    assert "an allow rule has no effect: only managed settings can add allow rules" in done.stderr


ASKING = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        info = {"name": "guard", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "approve", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        open("asked", "a").write("x")
        result = {"content": [{"type": "text", "text": ANSWER}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("locked", [True, ["skills", "agents", "hooks", "mcp"]])
def test_only_plugins_customize_if_the_policy_says_so(machine: Machine, locked: Any) -> None:
    machine.write("config/skills/mine/SKILL.md", "---\ndescription: d\n---\nText")
    machine.write("config/commands/own.md", "Text")
    machine.write("config/agents/mine.md", "---\nname: mine\ndescription: d\n---\nText")
    machine.write("plugin/.claude-plugin/plugin.json", {"name": "tools"})
    machine.write("plugin/skills/theirs/SKILL.md", "---\ndescription: d\n---\nText")
    machine.write("plugin/hooks/hooks.json", {"hooks": hook(machine, "hook-plugin")})
    servers = {"mine": {"command": "touch", "args": [str(machine.folder / "hook-server")]}}
    user: Json = {"hooks": hook(machine, "hook-user"), "mcpServers": servers}

    done = machine.run(
        "--plugin-dir", str(machine.work / "plugin"), managed={"strictPluginOnlyCustomization": locked}, user=user
    )

    assert done.init["skills"] == ["tools:theirs"]
    assert "own" not in done.init["slash_commands"]
    assert "mine" not in done.init["agents"]
    assert done.init["mcp_servers"] == []
    assert ran(machine) == {"hook-plugin"}


def test_a_surface_that_is_not_locked_is_free(machine: Machine) -> None:
    machine.write("config/skills/mine/SKILL.md", "---\ndescription: d\n---\nText")

    done = machine.run(managed={"strictPluginOnlyCustomization": ["hooks"]}, user={"hooks": hook(machine, "hook-user")})

    assert (done.init["skills"], ran(machine)) == (["mine"], set())


def test_skills_do_not_run_shell_lines_if_that_is_disabled(machine: Machine, api: MessagesApi) -> None:
    machine.write("config/commands/own.md", f"Now: !`touch {machine.folder / 'hook-shell'}`")
    allow: Json = {"permissions": {"allow": ["Bash"]}}
    environment: Any = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "k"}

    machine.run(user={"disableSkillShellExecution": True, **allow}, script=None, prompt="/own", **environment)

    assert ran(machine) == set()
    assert "[shell command disabled by the setting disableSkillShellExecution]" in json.dumps(api.requests)

    machine.run(user=allow, script=None, prompt="/own", **environment)
    assert ran(machine) == {"hook-shell"}


def test_skill_overrides_hide_skills(machine: Machine) -> None:
    for name in ("on", "named", "mine", "off"):
        machine.write(f"config/skills/{name}/SKILL.md", "---\ndescription: words\n---\nText")
    overrides = {"named": "name-only", "mine": "user-invocable-only", "off": "off"}

    done = machine.run(user={"skillOverrides": overrides}, send=(control("initialize"),))

    (answer,) = done.of("control_response")
    listed = {row["name"]: row["description"] for row in answer["response"]["response"]["commands"]}
    assert {"on", "named", "mine"} <= set(listed)
    assert "off" not in listed
    assert "off" not in done.init["skills"]


def test_instructions_of_the_organization_reach_the_model(machine: Machine, api: MessagesApi) -> None:
    machine.write("CLAUDE.md", "Of the project.")
    machine.write("config/CLAUDE.md", "Of the user.")
    environment: Any = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "k"}

    machine.run(
        managed={"claudeMd": "Of the organization."},
        user={"claudeMdExcludes": ["**/work/CLAUDE.md"], "language": "japanese", "attribution": {"commit": "By us"}},
        script=None,
        **environment,
    )

    system = next(request for request in api.requests if request.get("tools"))["system"][-1]["text"]
    assert "Of the organization." in system
    assert "Of the user." in system
    assert "Of the project." not in system
    assert "Answer in this language, unless the user asks for another: japanese" in system
    assert "End the messages of git commits with this text: By us" in system
