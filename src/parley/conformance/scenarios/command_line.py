"""The command line: one-shot runs, options of a session, environment variables, and limits of a turn."""

from __future__ import annotations

import json
import re

from parley.conformance.conditions import (
    answered,
    ends_with,
    exits_with,
    first_line,
    init_lists,
    line_has,
    lines_have,
    made,
    not_told,
    require_field,
    told,
    tool_fails,
    tool_says,
)
from parley.conformance.driver import ASK, BYPASS, EngineDriver, bash, read_body, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import Mismatch, ScenarioLog, need
from parley.models.script import ScriptedError, ScriptedTurn

ANSWER = "The answer is 42."
BETA = "context-1m-2025-08-07"
SCHEMA = {"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}


def output(log: ScenarioLog, run: int = 0) -> str:
    return "\n".join(entry.raw for entry in log.runs[run].entries if not entry.sent)


@scenario(
    "print-text",
    check("flag.print+-p", "trace 001",
          f"stdout is the text {ANSWER!r}; exit code 0",
          lambda log: need(output(log).strip() == ANSWER, f"{output(log)!r}; {log.summary()}"), exits_with(0)),
)  # fmt: skip
async def print_text(engine: EngineDriver) -> None:
    engine.model.play(say(ANSWER))
    await engine.one_shot("--print", "What is it?")


def json_is_printed(log: ScenarioLog) -> None:
    body = read_body(output(log).encode())
    need(body is not None and body.get("type") == "result" and body.get("result") == ANSWER, output(log))
    need(log.exit_code == 0, f"exit code {log.exit_code}")


@scenario(
    "print-json",
    check("output.json flag.output-format", "trace 002", "one JSON object: the result", json_is_printed),
)  # fmt: skip
async def print_json(engine: EngineDriver) -> None:
    engine.model.play(say(ANSWER))
    await engine.one_shot("-p", "What is it?", "--output-format", "json")


@scenario(
    "print-stream",
    check("flag.end-of-flags flag.verbose", "trace 003; cli.md §1",
          "a prompt after `--` that begins with dashes is answered in stream-json",
          told("--what is it?"), ends_with(result=ANSWER), exits_with(0)),
)  # fmt: skip
async def print_stream(engine: EngineDriver) -> None:
    """The prompt after `--`, as old SDKs give it."""
    engine.model.play(say(ANSWER))
    await engine.one_shot("--output-format", "stream-json", "--verbose", "--print", "--", "--what is it?")


def unknown_command_is_an_error(log: ScenarioLog) -> None:
    need(not log.told_model("/no-such:command"), "the command was sent to the model")
    found = log.all("result", run=0)
    need(len(found) == 1 and found[0].get("is_error") is True, log.summary(0))
    need(log.runs[0].exit_code not in (0, None), f"exit code {log.runs[0].exit_code}")
    need(log.told_model("/etc/hosts is odd") and log.runs[1].exit_code == 0, log.summary(1))


@scenario(
    "unknown-command",
    check("command.unknown flag.print+-p",
          "claude-code issue 88387; the original sends it to the model and exits with 0",
          "an unknown slash command is one `result` with `is_error` and an exit code that is not 0, without a model "
          "call; a path is a prompt",
          unknown_command_is_an_error, is_advice=True),
)  # fmt: skip
async def unknown_command(engine: EngineDriver) -> None:
    """A slash command that nothing defines, then a path, which is none."""
    engine.model.play(say(ANSWER), say(ANSWER))
    await engine.one_shot("-p", "/no-such:command with words", "--output-format", "stream-json", "--verbose")
    await engine.one_shot("-p", "/etc/hosts is odd", "--output-format", "stream-json", "--verbose")


def goal_continues_the_turn(log: ScenarioLog) -> None:
    need("goal" in log.first("system/init")["slash_commands"], "init does not list the command")
    need(log.told_model("the tests pass") and log.told_model("TWO-FAIL"), log.summary())
    found = log.all("result")
    need(len(found) == 1 and found[0].get("result") == ANSWER, log.summary())


@scenario(
    "goal",
    check("command.goal init.slash_commands", "the documentation of Claude Code, and CLI 2.1.327",
          "`/goal CONDITION` is a prompt; while a model judges that the condition is not met, the turn continues with "
          "the reason, and it has one result",
          goal_continues_the_turn),
)  # fmt: skip
async def goal(engine: EngineDriver) -> None:
    """A goal that is judged twice: the second time it is met."""
    verdicts = [json.dumps({"ok": ok, "reason": reason}) for ok, reason in ((False, "TWO-FAIL"), (True, "all pass"))]
    engine.model.play(say("Half."), say(verdicts[0]), say(ANSWER), say(verdicts[1]))
    await engine.one_shot("-p", "/goal the tests pass", "--output-format", "stream-json", "--verbose")


@scenario(
    "prompt-on-stdin",
    check("input.text flag.input-format", "trace 008",
          "text on stdin is the prompt, up to its end",
          told("What does stdin say?"), lambda log: need(output(log).strip() == ANSWER, output(log))),
)  # fmt: skip
async def prompt_on_stdin(engine: EngineDriver) -> None:
    engine.model.play(say(ANSWER))
    await engine.start("--print", stream=False)
    engine.send("What does stdin say?")
    await engine.finish()


def version_is_printed(log: ScenarioLog) -> None:
    for run in (0, 1):
        need(re.match(r"\d+\.\d+\.\d+", output(log, run)), f"{output(log, run)!r}; {log.summary()}")
        need(log.runs[run].exit_code == 0, f"exit code {log.runs[run].exit_code}")


@scenario(
    "version",
    check("flag.version+-v", "cli.md §5; trace 009", "stdout begins with X.Y.Z; exit code 0", version_is_printed),
)  # fmt: skip
async def version(engine: EngineDriver) -> None:
    await engine.one_shot("--version")
    await engine.one_shot("-v")


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


@scenario(
    "prompt-flags",
    check("flag.system-prompt", "trace 107",
          "the prompt is in the system text of the request",
          lambda log: need("You are a lighthouse keeper." in system_text(log), system_text(log))),
    check("flag.tools", "trace 049; cli.md §2",
          "`--tools Read,Bash`: init and the request have these two tools and no other built-in one", two_tools),
    check("flag.betas", "trace 107", f"the header anthropic-beta has {BETA}",
          lambda log: need(any(BETA in each.get("anthropic-beta", "") for each in log.headers), log.headers)),
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


def thinking_budget(log: ScenarioLog) -> None:
    found = log.main_requests()[0].get("thinking") if log.main_requests() else None
    need(isinstance(found, dict) and found.get("budget_tokens") == 2000, found)


def plugin_listed(log: ScenarioLog) -> None:
    line = log.first("system/init")
    need("tried" in [each.get("name") for each in line.get("plugins") or []], line.get("plugins"))
    need("tried:greet" in (line.get("slash_commands") or []), line.get("slash_commands"))


@scenario(
    "append-flags",
    check("flag.append-system-prompt", "trace 107", "the text is in the system text",
          lambda log: need("ALSO-THIS-LINE" in system_text(log), system_text(log)[-400:]),
          lambda log: need(len(system_text(log)) > 200, "the default prompt is missing")),
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
          "requests go to ANTHROPIC_BASE_URL, with ANTHROPIC_CUSTOM_HEADERS",
          lambda log: need(any(each.get("x-conform") == "yes" for each in log.headers), log.headers[:1])),
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


def stops_at_turns(log: ScenarioLog) -> None:
    line = log.last("result")
    found = [line.get(name) for name in ("subtype", "is_error", "terminal_reason")]
    need(found == ["error_max_turns", True, "max_turns"], line)
    need(require_field(line, "errors", "a"), line)
    need(not [block for block in log.blocks("tool_use") if block.get("id") == "toolu_2"], "a second call was made")
    need(log.exit_code not in (0, None), f"exit code {log.exit_code}")


@scenario(
    "max-turns",
    check("flag.max-turns result.errors exit.is_error-true", "trace 076",
          "`error_max_turns`, is_error, `errors`, terminal_reason `max_turns`; no second model call; exit code 1",
          stops_at_turns),
)  # fmt: skip
async def max_turns(engine: EngineDriver) -> None:
    engine.model.play(bash("echo 1", "toolu_1"), bash("echo 2", "toolu_2"), say("never"))
    await engine.turn("go", *BYPASS, "--max-turns", "1")


def stops_at_budget(log: ScenarioLog) -> None:
    line = log.last("result")
    need((line.get("subtype"), line.get("is_error")) == ("error_max_budget_usd", True), line)
    need(require_field(line, "errors", "a"), line)
    need(require_field(line, "total_cost_usd", "n") > 0.5, line)
    need(log.exit_code not in (0, None), f"exit code {log.exit_code}")


@scenario(
    "max-budget",
    check("flag.max-budget-usd", "trace 077",
          "`error_max_budget_usd`, is_error, `errors`, and a cost over the budget; exit code 1", stops_at_budget),
)  # fmt: skip
async def max_budget(engine: EngineDriver) -> None:
    dear = use("Bash", {"command": "echo 1"}, "toolu_1", usage={"input_tokens": 900_000, "output_tokens": 90_000})
    engine.model.play(dear, bash("echo 2", "toolu_2"), say("never"))
    await engine.turn("go", *BYPASS, "--max-budget-usd", "0.5")


@scenario(
    "json-schema",
    check("flag.json-schema result.structured_output tool.StructuredOutput-internal", "trace 078",
          "the wrong answer is refused; `structured_output` is the right one",
          tool_fails("toolu_wrong"), ends_with(structured_output={"answer": 42})),
)  # fmt: skip
async def json_schema(engine: EngineDriver) -> None:
    """A wrong answer, then a right one."""
    engine.model.play(
        use("StructuredOutput", {"answer": "x"}, "toolu_wrong"),
        use("StructuredOutput", {"answer": 42}, "toolu_right"),
        say("done"),
    )
    await engine.turn("go", *BYPASS, "--json-schema", json.dumps(SCHEMA))


def api_error_result(log: ScenarioLog) -> None:
    line = log.last("result")
    need(line.get("is_error") is True and line.get("api_error_status") == 403, line)
    need(line.get("terminal_reason") == "api_error", line)
    need(line.get("result") or line.get("errors"), line)
    need(log.exit_code not in (0, None), f"exit code {log.exit_code}")


@scenario(
    "api-error",
    check("result.api_error_status exit.is_error-true", "trace 085",
          "a result with is_error, `api_error_status` 403 and the text; terminal_reason api_error; exit code 1",
          api_error_result),
    check("assistant.error", "trace 085; messages.md §5",
          "the failure is an assistant line with `error` at the top level: authentication_failed",
          line_has("assistant", -1, error="authentication_failed")),
)  # fmt: skip
async def api_error(engine: EngineDriver) -> None:
    """The model refuses the request, in a run with one prompt."""
    engine.model.fail(403, "permission_error", "You may not use this model")
    await engine.one_shot("--print", "--output-format", "stream-json", "--verbose", "hi")


@scenario(
    "api-error-alive",
    check("turn.after-error exit.is_error-true", "cli.md §4; traces README, exit codes",
          "an error result does not end a conversation: the next turn succeeds, and the exit code is 0",
          lines_have("result", "is_error", [True, False]), ends_with(result="Recovered."), exits_with(0)),
)  # fmt: skip
async def api_error_alive(engine: EngineDriver) -> None:
    """A refused request in a conversation, then a good one."""
    engine.model.fail(403, "permission_error", "You may not use this model")
    await engine.begin("first")
    await engine.result()
    engine.model.play(say("Recovered."))
    engine.user("second")
    await engine.result()
    await engine.finish()


@scenario(
    "retries",
    check("out.system/api_retry", "trace 089; users.md U-1.2",
          "an overloaded model is asked again, each retry is a line `system/api_retry`, and the turn succeeds",
          first_line("system/api_retry", "attempt:n", "max_retries:n", "retry_delay_ms:n"),
          ends_with(result="At last.")),
)  # fmt: skip
async def retries(engine: EngineDriver) -> None:
    """The model is overloaded twice, then answers."""
    busy = ScriptedTurn(error=ScriptedError(status=529, type="overloaded_error", message="busy"))
    engine.model.play(busy, say("At last."))
    await engine.turn("go")
