"""What an untrusted project restricts is its own: the user's hooks, servers, skills, styles and memory stay."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.helpers.paths import MCP_SERVERS
from tests.helpers.policies import Json, Machine, MessagesApi, calls

HOOK_EVENTS = ("UserPromptSubmit", "PreToolUse", "SessionStart")
CONFINING: Json = {
    "sandbox": {
        "enabled": True,
        "failIfUnavailable": False,
        "confineHooks": True,
        "confineMcpServers": True,
        "filesystem": {"denyRead": ["/"], "denyWrite": ["/"]},
        "network": {"deniedDomains": ["*"]},
        "credentials": {"envVars": [{"name": "PATH", "mode": "deny"}, {"name": "MARK", "mode": "deny"}]},
    }
}


def use(api: MessagesApi) -> Any:
    return {"script": None, "ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "k"}


@pytest.mark.parametrize("source", ["", "user,project"])
@pytest.mark.parametrize("also_confined", [False, True])
def test_a_project_cannot_confine_hooks_of_the_user(machine: Machine, source: str, also_confined: bool) -> None:
    outside = machine.work if also_confined else machine.folder
    command = f'echo "$MARK" >> {outside}/hook-ran'
    hooks = {event: [{"hooks": [{"type": "command", "command": command}]}] for event in HOOK_EVENTS}
    machine.write(".claude/settings.json", CONFINING)
    own: Json = {"hooks": hooks, "sandbox": {"confineHooks": True}} if also_confined else {"hooks": hooks}

    machine.run(
        *(["--setting-sources", source] if source else []),
        user=own,
        script=calls(("Read", {"file_path": "a"})),
        MARK="seen",
    )

    assert (outside / "hook-ran").read_text().split() == ["seen"] * len(HOOK_EVENTS)


def test_a_project_cannot_confine_or_deny_servers_of_the_user(machine: Machine) -> None:
    mark = machine.folder / "started"
    code = f"import pathlib,runpy,sys; pathlib.Path({str(mark)!r}).touch(); sys.argv[1:] = ['well']; "
    code += f"runpy.run_path({str(MCP_SERVERS / 'plain.py')!r}, run_name='__main__')"
    server = {"command": sys.executable, "args": ["-c", code], "required": True}
    machine.write(".claude/settings.json", {**CONFINING, "deniedMcpServers": [{"serverName": "mine"}]})

    done = machine.run(user={"mcpServers": {"mine": server}})

    assert [(row["name"], row["status"]) for row in done.init["mcp_servers"]] == [("mine", "connected")]
    assert mark.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"claudeMdExcludes": ["**/CLAUDE.md", "/**", "*"]},
        {"permissions": {"deny": ["Read(//**)", "Read(~/**)", "Read(CLAUDE.md)"]}},
    ],
)
def test_a_project_cannot_exclude_the_memory_file_of_the_user(
    machine: Machine, api: MessagesApi, settings: Json
) -> None:
    machine.write("config/CLAUDE.md", "Of the user. @more.md")
    machine.write("config/more.md", "Of the import.")
    machine.write("CLAUDE.md", "Of the project.")
    machine.write(".claude/settings.json", settings)

    machine.run(**use(api))

    sent = json.dumps(api.requests)
    assert "Of the user." in sent
    assert "Of the import." in sent
    assert "Of the project." not in sent


def test_the_user_may_exclude_any_memory_file(machine: Machine, api: MessagesApi) -> None:
    machine.write("config/CLAUDE.md", "Of the user.")
    machine.write("CLAUDE.md", "Of the project.")

    machine.run(user={"claudeMdExcludes": ["**/CLAUDE.md"]}, **use(api))

    assert "Of the" not in json.dumps(api.requests)


def test_a_project_does_not_replace_styles_languages_agents_and_commands_of_the_user(
    machine: Machine, api: MessagesApi
) -> None:
    machine.write("config/output-styles/mine.md", "Style of the user.")
    machine.write(".claude/output-styles/mine.md", "Style of the project.")
    machine.write("config/commands/go.md", f"Command of the user. !`touch {machine.folder / 'shell'}`")
    machine.write(".claude/skills/go/SKILL.md", "---\ndescription: d\n---\nSkill of the project.")
    machine.write(
        ".claude/settings.json", {"outputStyle": "Learning", "language": "latin", "disableSkillShellExecution": True}
    )
    user = {"outputStyle": "mine", "language": "danish", "permissions": {"allow": ["Bash"]}}

    machine.run(user=user, prompt="/go", **use(api))

    sent = json.dumps(api.requests)
    assert "Style of the user." in sent
    assert "danish" in sent
    assert "Command of the user." in sent
    assert (machine.folder / "shell").exists()
    assert "of the project" not in sent
    assert "latin" not in sent


def test_a_project_cannot_accept_servers_that_the_user_rejects(machine: Machine) -> None:
    machine.write(".mcp.json", {"mcpServers": {"theirs": {"command": "true"}}})
    machine.write(".claude/settings.local.json", {"disabledMcpjsonServers": []})

    done = machine.run("--setting-sources", "user,project,local", user={"disabledMcpjsonServers": ["theirs"]})

    assert done.init["mcp_servers"] == []
