"""Subagents and background work."""

from __future__ import annotations

from parley.conformance.conditions import ends_with, require_field, says, tool_fails
from parley.conformance.driver import BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, fields, scenario
from parley.conformance.scenario_log import ScenarioLog, need

SUBTASK = "SUBTASK please"


def subagent_answers(log: ScenarioLog) -> None:
    need("Sub answer." in str(log.tool_result("toolu_agent").get("content")), log.tool_result("toolu_agent"))
    found = log.result_line("toolu_agent").get("tool_use_result")
    need(isinstance(found, dict) and found.get("status") == "completed" and found.get("agentId"), found)
    need(log.last("result").get("result") == "ok", log.last("result"))


def agent_of_initialize(log: ScenarioLog) -> None:
    need("helper" in (log.first("system/init").get("agents") or []), log.first("system/init").get("agents"))
    need(any("HELPER-AGENT" in str(body.get("system")) for body in log.requests), "the agent's prompt was not used")


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
          agent_of_initialize),
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


def task_is_stopped(log: ScenarioLog) -> None:
    log.answer("stop_task")
    found = require_field(log.last("system/task_updated"), "patch.status", "s")
    need(found == "killed", found)


@scenario(
    "stop-task",
    check("request.stop_task", "trace 026",
          "success; task_updated with status killed; the command's processes are gone", task_is_stopped),
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
