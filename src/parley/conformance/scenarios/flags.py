"""Options of a session that change what the model is sent, or what a tool may do."""

from __future__ import annotations

import json

from parley.conformance.driver import ASK, BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import Mismatch, ScenarioLog, need

BETA = "context-1m-2025-08-07"


@scenario("prompt-flags")
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


def system_text(log: ScenarioLog, number: int = 0) -> str:
    bodies = log.main_requests()
    if len(bodies) <= number:
        raise Mismatch(f"{len(bodies)} requests; {log.summary()}")
    return str(bodies[number].get("system"))


@check(
    "flag.system-prompt", on="prompt-flags", basis="trace 107",
    expects="the prompt is in the system text of the request",
)  # fmt: skip
def own_prompt(log: ScenarioLog) -> None:
    need("You are a lighthouse keeper." in system_text(log), system_text(log))


@check(
    "flag.tools", on="prompt-flags", basis="trace 049; cli.md §2",
    expects="`--tools Read,Bash`: init and the request have these two tools and no other built-in one",
)  # fmt: skip
def two_tools(log: ScenarioLog) -> None:
    listed = log.first("system/init").get("tools") or []
    need({"Read", "Bash"} <= set(listed) and not {"Write", "Edit", "Task", "WebFetch"} & set(listed), listed)
    sent = [tool.get("name") for tool in log.main_requests()[0].get("tools", [])]
    need({"Read", "Bash"} <= set(sent) and not {"Write", "Edit", "Task", "Agent"} & set(sent), sent)


@check("flag.betas", on="prompt-flags", basis="trace 107", expects=f"the header anthropic-beta has {BETA}")
def beta_header(log: ScenarioLog) -> None:
    found = [headers.get("anthropic-beta", "") for headers in log.headers]
    need(any(BETA in value for value in found), found)


@check(
    "flag.settings", on="prompt-flags", basis="cli.md §6.3", expects="`env` of --settings reaches commands",
)  # fmt: skip
def settings_env(log: ScenarioLog) -> None:
    need("value=yes" in str(log.tool_result("toolu_env").get("content")), log.tool_result("toolu_env"))


@check(
    "flag.setting-sources", on="prompt-flags", basis="cli.md §2",
    expects="with an empty --setting-sources the project's CLAUDE.md is not sent",
)  # fmt: skip
def no_memory_file(log: ScenarioLog) -> None:
    log.last("result")
    need(not log.told_model("MEMORY-FILE-TEXT"), "the model was sent CLAUDE.md")


@check(
    "flag.add-dir", on="prompt-flags", basis="cli.md §2", expects="a file in the added folder is read without asking",
)  # fmt: skip
def added_folder(log: ScenarioLog) -> None:
    found = log.tool_result("toolu_further")
    need("from the further folder" in str(found.get("content")), found)


@check(
    "flag.accepted", "flag.effort", "flag.strict-mcp-config", on="prompt-flags", basis="trace 107",
    expects="--effort and --strict-mcp-config are accepted and the turn succeeds",
)  # fmt: skip
def accepted(log: ScenarioLog) -> None:
    need(log.last("result").get("subtype") == "success", log.summary())


@scenario("append-flags")
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


@check("flag.append-system-prompt", on="append-flags", basis="trace 107", expects="the text is in the system text")
def appended(log: ScenarioLog) -> None:
    need("ALSO-THIS-LINE" in system_text(log), system_text(log)[-400:])
    need(len(system_text(log)) > 200, "the default prompt is missing")


@check(
    "flag.max-thinking-tokens", on="append-flags", basis="trace 107",
    expects="the request of claude-sonnet-4-5 has a thinking budget of 2000 tokens",
)  # fmt: skip
def thinking_budget(log: ScenarioLog) -> None:
    found = log.main_requests()[0].get("thinking") if log.main_requests() else None
    need(isinstance(found, dict) and found.get("budget_tokens") == 2000, found)


@check("flag.agents", on="append-flags", basis="cli.md §2", expects="init lists the agent of --agents")
def agent_listed(log: ScenarioLog) -> None:
    need("reviewer" in (log.first("system/init").get("agents") or []), log.first("system/init").get("agents"))


@check("flag.plugin-dir", on="append-flags", basis="cli.md §2", expects="init lists the plug-in and its command")
def plugin_listed(log: ScenarioLog) -> None:
    line = log.first("system/init")
    need("tried" in [each.get("name") for each in line.get("plugins") or []], line.get("plugins"))
    need("tried:greet" in (line.get("slash_commands") or []), line.get("slash_commands"))


@check(
    "flag.accepted-2", "flag.thinking-display", "flag.task-budget", "flag.fallback-model", on="append-flags",
    basis="cli.md §2", expects="--thinking-display, --task-budget and --fallback-model are accepted",
)  # fmt: skip
def accepted_too(log: ScenarioLog) -> None:
    need(log.last("result").get("subtype") == "success", log.summary())


@check(
    "flag.memory-file", "flag.setting-sources", on="append-flags", basis="cli.md §2",
    expects="without --setting-sources the project's CLAUDE.md is sent",
)  # fmt: skip
def memory_file(log: ScenarioLog) -> None:
    need(log.told_model("MEMORY-FILE-TEXT"), "the model was not sent CLAUDE.md")


@scenario("file-flags")
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


@check("flag.system-prompt-file", on="file-flags", basis="cli.md §2", expects="the text of the file is the system text")
def prompt_file(log: ScenarioLog) -> None:
    need("You are a clockmaker." in system_text(log), system_text(log)[:400])


@check("flag.thinking", on="file-flags", basis="trace 107", expects="`disabled`: the request asks for no thinking")
def no_thinking(log: ScenarioLog) -> None:
    found = log.main_requests()[0].get("thinking") if log.main_requests() else None
    need(found is None or (isinstance(found, dict) and found.get("type") == "disabled"), found)


@check(
    "flag.dangerously-skip-permissions", on="file-flags", basis="cli.md §2",
    expects="the mode is bypassPermissions, and a command runs without asking",
)  # fmt: skip
def skips_permissions(log: ScenarioLog) -> None:
    found = log.first("system/init").get("permissionMode")
    need(found == "bypassPermissions", found)
    need("made.txt" in log.files, log.summary())


@scenario("config-folder")
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


@check(
    "env.CLAUDE_CONFIG_DIR", "client_env.CLAUDE_CONFIG_DIR", on="config-folder", basis="cli.md §3, §6.1",
    expects="settings are read from the folder and the transcript is written into it, not into the home",
)  # fmt: skip
def config_dir(log: ScenarioLog) -> None:
    need("user-settings" in str(log.tool_result("toolu_user").get("content")), log.tool_result("toolu_user"))
    need(len(log.facts.get("transcripts", [])) == 1 and not log.facts["home"], log.facts)


@check(
    "env.BASH_DEFAULT_TIMEOUT_MS+BASH_MAX_TIMEOUT_MS", on="config-folder", basis="cli.md §3",
    expects="a command that takes longer than 1000 ms is stopped and has an error as its result",
)  # fmt: skip
def command_limit(log: ScenarioLog) -> None:
    found = log.tool_result("toolu_slow")
    need(found.get("is_error") is True, found)


@check(
    "env.ANTHROPIC_BASE_URL+ANTHROPIC_AUTH_TOKEN", on="config-folder", basis="cli.md §3",
    expects="requests go to ANTHROPIC_BASE_URL, with ANTHROPIC_CUSTOM_HEADERS",
)  # fmt: skip
def custom_headers(log: ScenarioLog) -> None:
    need(log.headers, "no request reached the model")
    need(any(headers.get("x-conform") == "yes" for headers in log.headers), log.headers[:1])


@check(
    "env.of-sdks", "client_env.CLAUDE_CODE_ENTRYPOINT", "client_env.CLAUDE_AGENT_SDK_VERSION", "client_env.PWD",
    "client_env.CLAUDE_AGENT_SDK_CLIENT_APP", "client_env.TRACEPARENT+TRACESTATE", "env.MCP_TIMEOUT+MCP_TOOL_TIMEOUT",
    on="config-folder", basis="trace 116", expects="the variables that SDKs set are accepted",
)  # fmt: skip
def sdk_variables(log: ScenarioLog) -> None:
    need(log.last("result").get("subtype") == "success", log.summary())


@scenario("nested")
async def nested(engine: EngineDriver) -> None:
    """Started with CLAUDECODE=1, as inside another session."""
    engine.model.play(say("one"))
    await engine.turn("go", env={"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-go"})


@check(
    "client_env.CLAUDECODE", on="nested", basis="users.md U-13.4", expects="the engine starts inside another session",
)  # fmt: skip
def starts_nested(log: ScenarioLog) -> None:
    need(log.last("result").get("result") == "one", log.summary())


@scenario("skill")
async def skill(engine: EngineDriver) -> None:
    """A skill of the project, named in initialize and called by the model."""
    engine.put({
        ".claude/skills/brew/SKILL.md": "---\nname: brew\ndescription: Brews tea\n---\nSKILL-BODY: boil water.\n"
    })  # fmt: skip
    engine.model.play(use("Skill", {"skill": "brew"}, "toolu_skill"), say("one"))
    await engine.start("--setting-sources", "user,project", "--allowedTools", "Skill")
    await engine.initialize(skills=["brew"], excludeDynamicSections=True, systemPromptSnapshot=True)
    engine.user("go")
    await engine.result()
    await engine.finish()


@check(
    "tool.Skill", "initialize.skills", "init.skills", on="skill", basis="control.md §5; tools.md §3",
    expects="init lists the skill, and calling it sends its text to the model",
)  # fmt: skip
def skill_is_used(log: ScenarioLog) -> None:
    need("brew" in (log.first("system/init").get("skills") or []), log.first("system/init").get("skills"))
    need(log.told_model("SKILL-BODY: boil water."), log.summary())


@check(
    "initialize.accepted", "initialize.excludeDynamicSections", "initialize.systemPromptSnapshot", on="skill",
    basis="control.md §5", expects="excludeDynamicSections and systemPromptSnapshot are accepted",
)  # fmt: skip
def initialize_options(log: ScenarioLog) -> None:
    log.answer("initialize")
    need(log.last("result").get("subtype") == "success", log.summary())


@scenario("client-composed")
async def client_composed(engine: EngineDriver) -> None:
    """A prompt that looks like a command, marked as literal; a prompt with an origin."""
    engine.model.play(say("one"), say("two"))
    await engine.start()
    await engine.initialize()
    engine.user("/cost is a literal text", client_composed=True, origin={"kind": "human"})
    await engine.result()
    await engine.finish()


@check(
    "user.client_composed", "user.origin", on="client-composed", basis="messages.md §4",
    expects="the text reaches the model literally",
)  # fmt: skip
def literal_text(log: ScenarioLog) -> None:
    need(log.told_model("/cost is a literal text"), log.summary())
    need(log.last("result").get("result") == "one", log.summary())
