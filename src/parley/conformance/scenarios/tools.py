"""The built-in tools: what they do, what they return and how calls fail; subagents and background work."""

from __future__ import annotations

from parley.conformance.conditions import (
    answered,
    asks_for,
    ends_with,
    file_is,
    init_lists,
    output_of,
    require_field,
    says,
    tool_fails,
    tool_output,
    tool_says,
)
from parley.conformance.driver import BYPASS, EngineDriver, bash, say, use
from parley.conformance.registry import check, fields, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.models.script import ScriptedCall, ScriptedTurn

TOOLS = "Read,Write,Edit,Glob,Grep,Bash,TodoWrite,WebFetch,WebSearch"
OLD_TODOS: dict[str, str | None] = {"CLAUDE_CODE_ENABLE_TASKS": "0"}
"""The recorded engine has TodoWrite only with it."""
SUBTASK = "SUBTASK please"


def glob_files(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_glob")
    for path in ("durationMs:n", "numFiles:n", "truncated:b"):
        require_field(found, *path.split(":"))
    names = require_field(found, "filenames", "a")
    need(len(names) == 1 and str(names[0]).endswith("sub/b.py"), names)


def todo_write(log: ScenarioLog) -> None:
    found = output_of(log, "toolu_todo")
    need(found.get("oldTodos") == [] and len(require_field(found, "newTodos", "a")) == 1, found)


def engine_runs(log: ScenarioLog) -> None:
    results = [line for line in log.all("user") if "tool_result" in str(line.get("message"))]
    need(len(results) == 6, f"{len(results)} lines with results; {log.summary()}")
    sent = str(log.main_requests()[-1].get("messages"))
    need("toolu_read" in sent and "toolu_todo" in sent, "the results were not sent to the model")
    need(log.last("result").get("num_turns") == 7, log.last("result").get("num_turns"))


@scenario(
    "files",
    check("tool.Read user.tool_use_result", "trace 010; tools.md §1",
          "the text with line numbers; `tool_use_result` has type and file{filePath,content,numLines,...}",
          tool_output("toolu_read", "type:s", "file.filePath:s", "file.content:s", "file.numLines:n",
                      "file.startLine:n"),
          tool_says("toolu_read", "1\talpha")),
    check("tool.Edit", "trace 012; tools.md §1",
          "the file is changed; filePath, oldString, newString, structuredPatch",
          tool_output("toolu_edit", "filePath:s", "oldString:s", "newString:s", "structuredPatch:a", "userModified:b",
                      "replaceAll:b"),
          file_is("a.txt", "ALPHA\nbeta\n")),
    check("tool.Write", "trace 011; tools.md §1",
          "the file is written; type create, filePath, content, structuredPatch",
          tool_output("toolu_write", "type:s", "filePath:s", "content:s", "structuredPatch:a", "originalFile:s0"),
          file_is("new.txt", "new text\n")),
    check("tool.Glob", "trace 013; tools.md §1", "filenames, numFiles, durationMs, truncated", glob_files),
    check("tool.Grep", "trace 013; tools.md §1",
          "the matching line; mode, numFiles, filenames",
          tool_output("toolu_grep", "mode:s", "numFiles:n", "filenames:a", "content:s"),
          tool_says("toolu_grep", "beta")),
    check("tool.TodoWrite", "trace 110; tools.md §1", "oldTodos and newTodos", todo_write),
    check("tool_fact.who-runs-tools user.message.content out.user", "tools.md §5",
          "the engine runs the tools; each result is a user line with one tool_result, and reaches the model",
          engine_runs),
)  # fmt: skip
async def files(engine: EngineDriver) -> None:
    """Read, Edit, Write, Glob and Grep, one after the other."""
    engine.put({"a.txt": "alpha\nbeta\n", "sub/b.py": "import os\n"})
    at = engine.cwd
    todo = {"content": "Write it", "status": "pending", "activeForm": "Writing it"}
    engine.model.play(
        use("Read", {"file_path": str(at / "a.txt")}, "toolu_read"),
        use("Edit", {"file_path": str(at / "a.txt"), "old_string": "alpha", "new_string": "ALPHA"}, "toolu_edit"),
        use("Write", {"file_path": str(at / "new.txt"), "content": "new text\n"}, "toolu_write"),
        use("Glob", {"pattern": "**/*.py"}, "toolu_glob"),
        use("Grep", {"pattern": "beta", "output_mode": "content"}, "toolu_grep"),
        use("TodoWrite", {"todos": [todo]}, "toolu_todo"),
        say("ok"),
    )
    await engine.turn("go", *BYPASS, "--tools", TOOLS, env=OLD_TODOS)
    engine.keep("a.txt", "new.txt")


@scenario(
    "commands",
    check("tool.Bash", "trace 014; tools.md §1",
          "output of both streams; stdout, stderr, interrupted; the folder stays for the next command",
          tool_output("toolu_ok", "stdout:s", "stderr:s", "interrupted:b"), tool_says("toolu_ok", "out", "err"),
          tool_says("toolu_pwd", "deep")),
    check("tool_fact.tool-errors block.tool_result", "trace 014; tools.md §5",
          "a command that exits with 3 gives is_error and its output, and the turn continues",
          tool_fails("toolu_fail", "before", "3"), ends_with(subtype="success")),
    check("tool_fact.parallel-calls", "traces README, fact 6",
          "two calls of one answer have one line each, with the right content",
          tool_says("toolu_one", "one"), tool_says("toolu_two", "two"),
          lambda log: need(log.result_line("toolu_one") is not log.result_line("toolu_two"), "they are in one line")),
)  # fmt: skip
async def commands(engine: EngineDriver) -> None:
    """Commands that succeed, fail, change the folder and write to stderr; calls in parallel."""
    engine.put({"one.txt": "one\n", "two.txt": "two\n", "deep/x": ""})
    calls = [ScriptedCall(name="Read", input={"file_path": str(engine.cwd / f"{n}.txt")}, id=f"toolu_{n}")
             for n in ("one", "two")]  # fmt: skip
    engine.model.play(
        bash("echo out; echo err >&2", "toolu_ok"),
        bash("echo before; exit 3", "toolu_fail"),
        bash("cd deep", "toolu_cd"),
        bash("pwd", "toolu_pwd"),
        ScriptedTurn(tools=calls),
        say("ok"),
    )
    await engine.turn("go", *BYPASS)


@scenario(
    "bad-calls",
    check("tool_fact.unknown-tool-name", "trace 017",
          "an error result, and the turn continues", tool_fails("toolu_unknown"), ends_with(subtype="success")),
    check("tool_fact.invalid-input", "trace 017",
          "an error result that names the missing field, and no permission request",
          tool_fails("toolu_invalid", "file_path"), asks_for()),
    check("tool.WebFetch", "trace 030",
          "an address that does not exist gives an error result", tool_fails("toolu_fetch")),
)  # fmt: skip
async def bad_calls(engine: EngineDriver) -> None:
    """An unknown tool, input that does not fit, and web tools without a network."""
    engine.model.play(
        use("NoSuchTool", {"x": 1}, "toolu_unknown"),
        use("Read", {"path": "a.txt"}, "toolu_invalid"),
        use("WebFetch", {"url": "https://conformance.invalid/x", "prompt": "p"}, "toolu_fetch"),
        say("ok"),
    )
    await engine.turn("go", *BYPASS)


@scenario(
    "web-search",
    check("tool.WebSearch block.server_tool_use", "trace 113",
          "the call has a result, good or not, and the turn ends", tool_says("toolu_search"), ends_with()),
)  # fmt: skip
async def web_search(engine: EngineDriver) -> None:
    engine.model.play(use("WebSearch", {"query": "tea"}, "toolu_search"), say("ok"), say("ok"))
    await engine.turn("go", *BYPASS)


@scenario(
    "long-output",
    check("tool_fact.output-limits framing.Max-line-length", "tools.md §5; trace 014",
          "two megabytes of output become a preview: every line stays under 1 MiB, and so does the request",
          tool_says("toolu_long"), ends_with(subtype="success"),
          lambda log: need(all(len(str(body)) < 1 << 20 for body in log.requests), "the whole output was sent")),
)  # fmt: skip
async def long_output(engine: EngineDriver) -> None:
    """A command that prints two megabytes."""
    engine.model.play(bash("yes 0123456789012345678901234567890 | head -c 2000000", "toolu_long"), say("ok"))
    await engine.turn("go", *BYPASS)


def subagent_answers(log: ScenarioLog) -> None:
    need("Sub answer." in str(log.tool_result("toolu_agent").get("content")), log.tool_result("toolu_agent"))
    found = log.result_line("toolu_agent").get("tool_use_result")
    need(isinstance(found, dict) and found.get("status") == "completed" and found.get("agentId"), found)
    need(log.last("result").get("result") == "ok", log.last("result"))


def parent_is_named(log: ScenarioLog) -> None:
    parents: dict[str, object] = {}
    for line in [*log.all("assistant"), *log.all("user")]:
        for block in line["message"]["content"] if isinstance(line["message"]["content"], list) else []:
            key = str(block.get("id") or block.get("tool_use_id") or block.get("text"))
            parents.setdefault(key, line.get("parent_tool_use_id"))
    need(parents.get("toolu_sub") == "toolu_agent", parents)
    need(parents.get("toolu_agent", "?") is None and parents.get("ok", "?") is None, parents)


def task_life(log: ScenarioLog) -> None:
    started, ended = log.first("system/task_started"), log.first("system/task_notification")
    need(started.get("task_id") == ended.get("task_id"), (started, ended))
    need(ended.get("status") == "completed" and isinstance(ended.get("summary"), str), ended)
    need(started.get("tool_use_id") == "toolu_agent", started)


@scenario(
    "subagent",
    *fields("system/task_started", "trace 020",
        {"system.task_started": "task_id:s", "out.system/task_started": "description:s"},
    ),
    *fields("system/task_progress", "trace 020",
        {"system.task_progress": "usage.total_tokens:n", "out.system/task_progress": "task_id:s"},
    ),
    *fields("system/task_notification", "trace 020",
        {"system.task_notification": "output_file:s"},
    ),
    check("tool.Task tool.Agent", "trace 020; tools.md §1",
          "the subagent's answer is in the tool result; `tool_use_result` has status completed and agentId",
          subagent_answers),
    check("initialize.agents init.agents", "trace 021",
          "an agent of initialize is listed in init, and its prompt is the system text of its requests",
          init_lists("agents", "helper"),
          lambda log: need(any("HELPER-AGENT" in str(body.get("system")) for body in log.requests), log.summary())),
    check("user.parent_tool_use_id assistant.parent_tool_use_id", "trace 020; users.md U-9.4",
          "the lines of the subagent name the call that started it; all others have null", parent_is_named),
    check("initialize.forwardSubagentText", "control.md §5",
          "with forwardSubagentText the texts of the subagent are sent too", says("Sub text.")),
    check("task.life out.system/task_notification", "trace 020; messages.md §8.2",
          "task_started, then task_notification with status completed and a summary, for the same task", task_life),
)  # fmt: skip
async def subagent(engine: EngineDriver) -> None:
    """An agent of initialize works in the foreground and calls a tool."""
    call = {"description": "Do it", "prompt": SUBTASK, "subagent_type": "helper", "run_in_background": False}
    engine.model.play(
        use("Task", call, "toolu_agent"),
        say("ok"),
        use("Bash", {"command": "echo insub", "description": "Echo"}, "toolu_sub", text="Sub text.", when="SUBTASK"),
        say("Sub answer.", when="insub"),
    )
    await engine.start(*BYPASS)
    agent = {"description": "Helps", "prompt": "You are a HELPER-AGENT.", "tools": ["Bash"]}
    await engine.initialize(agents={"helper": agent}, forwardSubagentText=True)
    engine.user("go")
    await engine.result()
    await engine.finish()


def background_ends(log: ScenarioLog) -> None:
    updated = log.last("system/task_updated")
    need((updated.get("patch") or {}).get("status") == "completed", updated)
    need(log.first("system/task_notification").get("status") == "completed", log.first("system/task_notification"))
    origin = log.nth("result", 1).get("origin")
    need(isinstance(origin, dict) and origin.get("kind") == "task-notification", origin)


@scenario(
    "background-command",
    check("task.background out.system/task_updated system.task_updated result.origin", "trace 023; users.md U-9.2",
          "task_updated completed and task_notification come without input, then a turn with its origin",
          background_ends),
)  # fmt: skip
async def background_command(engine: EngineDriver) -> None:
    """A command in the background ends after the turn."""
    engine.model.play(
        bash("sleep 0.8; echo bgdone", "toolu_bg", run_in_background=True), say("Started it."), say("It finished.")
    )
    await engine.begin("go", *BYPASS)
    await engine.result()
    await engine.line("system/task_notification")
    await engine.result()
    await engine.finish()


@scenario(
    "stop-task",
    check("request.stop_task", "trace 026",
          "success; task_updated with status killed; the command's processes are gone",
          answered("stop_task"),
          lambda log: need(log.last("system/task_updated")["patch"]["status"] == "killed", log.summary())),
)  # fmt: skip
async def stop_task(engine: EngineDriver) -> None:
    """A command in the background is stopped by the client."""
    engine.model.play(bash("sleep 60; echo never", "toolu_bg", run_in_background=True), say("Started it."))
    await engine.begin("go", *BYPASS)
    started = await engine.line("system/task_started")
    await engine.result()
    await engine.ask("stop_task", task_id=started.get("task_id"))
    await engine.until(lambda line: line.get("subtype") == "task_updated", "task_updated", from_start=True)
    await engine.finish()


@scenario(
    "task-tools",
    check("tool.TaskStop-old-KillShell tool.BashOutput-/-TaskOutput-older-CLIs", "tools.md §3",
          "stopping or reading a task that does not exist gives an error result, and the turn continues",
          tool_fails("toolu_stop"), tool_fails("toolu_output"), ends_with(result="ok")),
)  # fmt: skip
async def task_tools(engine: EngineDriver) -> None:
    """The model stops its own background command."""
    engine.model.play(
        bash("echo started; sleep 60", "toolu_bg", run_in_background=True),
        use("TaskStop", {"task_id": "nope"}, "toolu_stop"),
        use("TaskOutput", {"task_id": "nope", "block": False, "timeout": 100}, "toolu_output"),
        say("ok"),
    )
    await engine.begin("go", *BYPASS)
    started = await engine.line("system/task_started")
    await engine.result()
    await engine.ask("stop_task", task_id=started.get("task_id"))
    await engine.finish()
