"""Options of a session that change what the model is sent, or what a tool may do."""

from __future__ import annotations

import json

from parley.conformance.conditions import (
    answered,
    ends_with,
    init_lists,
    line_has,
    made,
    not_told,
    told,
    tool_fails,
    tool_says,
)
from parley.conformance.driver import ASK, BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import Mismatch, ScenarioLog, need

BETA = "context-1m-2025-08-07"


def system_text(log: ScenarioLog, number: int = 0) -> str:
    bodies = log.main_requests()
    if len(bodies) <= number:
        raise Mismatch(f"{len(bodies)} requests; {log.summary()}")
    return str(bodies[number].get("system"))


def two_tools(log: ScenarioLog) -> None:
    listed = log.first("system/init").get("tools") or []
    need({"Read", "Bash"} <= set(listed) and not {"Write", "Edit", "Task", "WebFetch"} & set(listed), listed)
    sent = [tool.get("name") for tool in log.main_requests()[0].get("tools", [])]
    need({"Read", "Bash"} <= set(sent) and not {"Write", "Edit", "Task", "Agent"} & set(sent), sent)


def beta_header(log: ScenarioLog) -> None:
    found = [headers.get("anthropic-beta", "") for headers in log.headers]
    need(any(BETA in value for value in found), found)


@scenario(
    "prompt-flags",
    check("flag.system-prompt", "trace 107",
          "the prompt is in the system text of the request",
          lambda log: need("You are a lighthouse keeper." in system_text(log), system_text(log))),
    check("flag.tools", "trace 049; cli.md §2",
          "`--tools Read,Bash`: init and the request have these two tools and no other built-in one", two_tools),
    check("flag.betas", "trace 107", f"the header anthropic-beta has {BETA}", beta_header),
    check("flag.settings", "cli.md §6.3", "`env` of --settings reaches commands", tool_says("toolu_env", "value=yes")),
    check("flag.setting-sources", "cli.md §2",
          "with an empty --setting-sources the project's CLAUDE.md is not sent",
          ends_with(), not_told("MEMORY-FILE-TEXT")),
    check("flag.add-dir", "cli.md §2",
          "a file in the added folder is read without asking", tool_says("toolu_further", "from the further folder")),
    check("flag.accepted flag.effort flag.strict-mcp-config", "trace 107",
          "--effort and --strict-mcp-config are accepted and the turn succeeds", ends_with(subtype="success")),
)  # fmt: skip
async def prompt_flags(engine: EngineDriver) -> None:
    """A system prompt of its own, two tools, a beta, settings and a further folder."""
    further = engine.root / "further"
    further.mkdir()
    (further / "note.txt").write_text("from the further folder\n")
    engine.put({"CLAUDE.md": "MEMORY-FILE-TEXT\n"})
    engine.model.play(
        bash("printenv CONFORM_VALUE", "toolu_env"),
        use("Read", {"file_path": str(further / "note.txt")}, "toolu_further"),
        say("ok"),
    )
    engine.on("can_use_tool", {"behavior": "deny", "message": "not asked for"})
    await engine.turn(
        "go", *ASK, "--system-prompt", "You are a lighthouse keeper.", "--tools", "Read,Bash", "--betas", BETA,
        "--settings", json.dumps({"env": {"CONFORM_VALUE": "value=yes"}}), "--setting-sources", "", "--add-dir",
        str(further),
        "--allowedTools", "Bash(printenv:*)", "--effort", "low", "--strict-mcp-config",
    )  # fmt: skip


def appended(log: ScenarioLog) -> None:
    need("ALSO-THIS-LINE" in system_text(log), system_text(log)[-400:])
    need(len(system_text(log)) > 200, "the default prompt is missing")


def thinking_budget(log: ScenarioLog) -> None:
    found = log.main_requests()[0].get("thinking") if log.main_requests() else None
    need(isinstance(found, dict) and found.get("budget_tokens") == 2000, found)


def plugin_listed(log: ScenarioLog) -> None:
    line = log.first("system/init")
    need("tried" in [each.get("name") for each in line.get("plugins") or []], line.get("plugins"))
    need("tried:greet" in (line.get("slash_commands") or []), line.get("slash_commands"))


@scenario(
    "append-flags",
    check("flag.append-system-prompt", "trace 107", "the text is in the system text", appended),
    check("flag.max-thinking-tokens", "trace 107",
          "the request of claude-sonnet-4-5 has a thinking budget of 2000 tokens", thinking_budget),
    check("flag.agents", "cli.md §2", "init lists the agent of --agents", init_lists("agents", "reviewer")),
    check("flag.plugin-dir", "cli.md §2", "init lists the plug-in and its command", plugin_listed),
    check("flag.accepted-2 flag.thinking-display flag.task-budget flag.fallback-model", "cli.md §2",
          "--thinking-display, --task-budget and --fallback-model are accepted", ends_with(subtype="success")),
    check("flag.memory-file flag.setting-sources", "cli.md §2",
          "without --setting-sources the project's CLAUDE.md is sent", told("MEMORY-FILE-TEXT")),
)  # fmt: skip
async def append_flags(engine: EngineDriver) -> None:
    """Additions to the default prompt, thinking, and an agent, a plug-in and a skill."""
    engine.put({
        "CLAUDE.md": "MEMORY-FILE-TEXT\n",
        "plugin/.claude-plugin/plugin.json": json.dumps({"name": "tried", "description": "d", "version": "1.0.0"}),
        "plugin/commands/greet.md": "---\ndescription: Greets\n---\nGreet PLUGIN-GREETING $ARGUMENTS\n",
    })  # fmt: skip
    engine.model.play(say("one"))
    await engine.turn(
        "go", "--append-system-prompt", "ALSO-THIS-LINE", "--max-thinking-tokens", "2000",
        "--thinking-display", "summarized", "--task-budget", "50000", "--fallback-model", "claude-haiku-4-5",
        "--plugin-dir", str(engine.cwd / "plugin"), "--agents",
        json.dumps({"reviewer": {"description": "Reviews code", "prompt": "You review."}}),
    )  # fmt: skip


def no_thinking(log: ScenarioLog) -> None:
    found = log.main_requests()[0].get("thinking") if log.main_requests() else None
    need(found is None or (isinstance(found, dict) and found.get("type") == "disabled"), found)


@scenario(
    "file-flags",
    check("flag.system-prompt-file", "cli.md §2",
          "the text of the file is the system text",
          lambda log: need("You are a clockmaker." in system_text(log), system_text(log)[:400])),
    check("flag.thinking", "trace 107", "`disabled`: the request asks for no thinking", no_thinking),
    check("flag.dangerously-skip-permissions", "cli.md §2",
          "the mode is bypassPermissions, and a command runs without asking",
          line_has("system/init", permissionMode="bypassPermissions"), made("made.txt")),
)  # fmt: skip
async def file_flags(engine: EngineDriver) -> None:
    """A system prompt from a file, thinking switched off, and `--setting=value` forms."""
    prompt = engine.root / "prompt.txt"
    prompt.write_text("You are a clockmaker.")
    engine.model.play(bash("touch made.txt", "toolu_made"), say("one"))
    await engine.turn(
        "go", "--system-prompt-file", str(prompt), "--thinking", "disabled", "--setting-sources=user,project",
        "--dangerously-skip-permissions",
    )  # fmt: skip
    engine.keep("made.txt")


def custom_headers(log: ScenarioLog) -> None:
    need(log.headers, "no request reached the model")
    need(any(headers.get("x-conform") == "yes" for headers in log.headers), log.headers[:1])


@scenario(
    "config-folder",
    check("env.CLAUDE_CONFIG_DIR client_env.CLAUDE_CONFIG_DIR", "cli.md §3, §6.1",
          "settings are read from the folder and the transcript is written into it, not into the home",
          tool_says("toolu_user", "user-settings"),
          lambda log: need(len(log.facts.get("transcripts", [])) == 1 and not log.facts["home"], log.facts)),
    check("env.BASH_DEFAULT_TIMEOUT_MS+BASH_MAX_TIMEOUT_MS", "cli.md §3",
          "a command that takes longer than 1000 ms is stopped and has an error as its result",
          tool_fails("toolu_slow")),
    check("env.ANTHROPIC_BASE_URL+ANTHROPIC_AUTH_TOKEN", "cli.md §3",
          "requests go to ANTHROPIC_BASE_URL, with ANTHROPIC_CUSTOM_HEADERS", custom_headers),
    check("env.of-sdks client_env.CLAUDE_CODE_ENTRYPOINT client_env.CLAUDE_AGENT_SDK_VERSION client_env.PWD "
          "client_env.CLAUDE_AGENT_SDK_CLIENT_APP client_env.TRACEPARENT+TRACESTATE "
          "env.MCP_TIMEOUT+MCP_TOOL_TIMEOUT", "trace 116",
          "the variables that SDKs set are accepted", ends_with(subtype="success")),
)  # fmt: skip
async def config_folder(engine: EngineDriver) -> None:
    """CLAUDE_CONFIG_DIR with a user's settings; a limit for commands; the variables of SDKs."""
    folder = engine.root / "config"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"env": {"FROM_USER": "user-settings"}}))
    engine.model.play(bash("echo $FROM_USER; pwd", "toolu_user"), bash("sleep 20", "toolu_slow"), say("one"))
    env: dict[str, str | None] = {
        "CLAUDE_CONFIG_DIR": str(folder), "BASH_DEFAULT_TIMEOUT_MS": "1000", "BASH_MAX_TIMEOUT_MS": "1000",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py", "CLAUDE_AGENT_SDK_VERSION": "0.2.184", "PWD": str(engine.cwd),
        "CLAUDE_AGENT_SDK_CLIENT_APP": "conform/1", "MCP_TIMEOUT": "5000", "MCP_TOOL_TIMEOUT": "5000",
        "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "ANTHROPIC_CUSTOM_HEADERS": "x-conform: yes",
    }  # fmt: skip
    await engine.turn("go", *BYPASS, env=env)
    found = list(folder.glob("projects/*/*.jsonl"))
    engine.log.facts["transcripts"] = [path.name for path in found]
    engine.log.facts["home"] = [path.name for path in engine.home.glob(".claude/projects/*/*.jsonl")]


@scenario(
    "nested",
    check("client_env.CLAUDECODE", "users.md U-13.4",
          "the engine starts inside another session", ends_with(result="one")),
)  # fmt: skip
async def nested(engine: EngineDriver) -> None:
    """Started with CLAUDECODE=1, as inside another session."""
    engine.model.play(say("one"))
    await engine.turn("go", env={"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-go"})


@scenario(
    "skill",
    check("tool.Skill initialize.skills init.skills", "control.md §5; tools.md §3",
          "init lists the skill, and calling it sends its text to the model",
          init_lists("skills", "brew"), told("SKILL-BODY: boil water.")),
    check("initialize.accepted initialize.excludeDynamicSections initialize.systemPromptSnapshot", "control.md §5",
          "excludeDynamicSections and systemPromptSnapshot are accepted",
          answered("initialize"), ends_with(subtype="success")),
)  # fmt: skip
async def skill(engine: EngineDriver) -> None:
    """A skill of the project, named in initialize and called by the model."""
    engine.put({
        ".claude/skills/brew/SKILL.md": "---\nname: brew\ndescription: Brews tea\n---\nSKILL-BODY: boil water.\n"
    })  # fmt: skip
    engine.model.play(use("Skill", {"skill": "brew"}, "toolu_skill"), say("one"))
    await engine.turn(
        "go",
        "--setting-sources",
        "user,project",
        "--allowedTools",
        "Skill",
        skills=["brew"],
        excludeDynamicSections=True,
        systemPromptSnapshot=True,
    )


@scenario(
    "client-composed",
    check("user.client_composed user.origin", "messages.md §4",
          "the text reaches the model literally", told("/cost is a literal text"), ends_with(result="one")),
)  # fmt: skip
async def client_composed(engine: EngineDriver) -> None:
    """A prompt that looks like a command, marked as literal; a prompt with an origin."""
    engine.model.play(say("one"), say("two"))
    await engine.start()
    await engine.initialize()
    engine.user("/cost is a literal text", client_composed=True, origin={"kind": "human"})
    await engine.result()
    await engine.finish()
