"""Permission modes, plans and questions."""

from __future__ import annotations

from parley.conformance.conditions import asks_for, line_has, made, not_made, only_made, tool_fails, tool_says
from parley.conformance.driver import ASK, BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.conformance.scenarios.permissions import allow
from parley.models.script import ScriptedTurn

QUESTION = {
    "question": "Which one?", "header": "Pick", "multiSelect": False,
    "options": [{"label": "Apple", "description": "a fruit"}, {"label": "Beet", "description": "a root"}],
}  # fmt: skip
PLAN = "# Plan\n1. Write the file"


def write(engine: EngineDriver, name: str, id: str) -> ScriptedTurn:
    return use("Write", {"file_path": str(engine.cwd / name), "content": "w\n"}, id)


@scenario(
    "accept-edits",
    check("mode.acceptEdits flag.permission-mode", "trace 039",
          "a file inside is written without a question; a command is asked for",
          made("w.txt"), asks_for("toolu_curl"), line_has("system/init", permissionMode="acceptEdits")),
)  # fmt: skip
async def accept_edits(engine: EngineDriver) -> None:
    engine.on("can_use_tool", {"behavior": "deny", "message": "no"})
    engine.model.play(write(engine, "w.txt", "toolu_w"), bash("curl http://127.0.0.1:9/", "toolu_curl"), say("ok"))
    await engine.turn("go", *ASK, "--permission-mode", "acceptEdits")
    engine.keep("w.txt")


@scenario(
    "bypass",
    check("mode.bypassPermissions", "control.md §9.2",
          "nothing is asked for; a deny rule still denies", asks_for(), only_made("y.txt")),
)  # fmt: skip
async def bypass(engine: EngineDriver) -> None:
    engine.on("can_use_tool", {"behavior": "deny", "message": "no"})
    engine.model.play(
        bash("touch x.txt", "toolu_x"), bash("rm x.txt && touch y.txt", "toolu_y"), bash("mv y.txt z.txt", "toolu_z"),
        say("ok")
    )  # fmt: skip
    await engine.turn("go", *ASK, *BYPASS, "--disallowedTools", "Bash(mv:*)")
    engine.keep("x.txt", "y.txt", "z.txt")


@scenario(
    "dont-ask",
    check("mode.dontAsk", "trace 043",
          "what would be asked for is denied; reading works",
          asks_for(), not_made("x.txt"), tool_says("toolu_read", "alpha")),
)  # fmt: skip
async def dont_ask(engine: EngineDriver) -> None:
    engine.put({"a.txt": "alpha\n"})
    engine.on("can_use_tool", allow)
    engine.model.play(
        bash("touch x.txt", "toolu_x"), use("Read", {"file_path": str(engine.cwd / "a.txt")}, "toolu_read"), say("ok")
    )
    await engine.turn("go", *ASK, "--permission-mode", "dontAsk")
    engine.keep("x.txt")


def auto_is_accepted(log: ScenarioLog) -> None:
    need(log.first("system/init").get("permissionMode") in ("auto", "default"), log.first("system/init"))
    need(log.last("result").get("result") == "ok", log.last("result"))


@scenario(
    "auto-mode",
    check("mode.auto", "trace 050",
          "the mode is accepted, or another one is named, and the turn ends", auto_is_accepted),
)  # fmt: skip
async def auto_mode(engine: EngineDriver) -> None:
    engine.on("can_use_tool", allow)
    engine.model.play(say("ok"))
    await engine.turn("go", *ASK, "--permission-mode", "auto")


def plan_is_approved(log: ScenarioLog) -> None:
    asked = [request.get("tool_name") for request in log.asked("can_use_tool")]
    need(asked[:1] == ["ExitPlanMode"], f"{asked}; {log.summary()}")
    need(log.tool_result("toolu_plan").get("is_error") is not True, log.tool_result("toolu_plan"))
    modes = [line.get("permissionMode") for line in log.all("system/status")]
    need("default" in modes, modes)
    need("after.txt" in log.files, log.summary())


@scenario(
    "plan",
    check("tool.ExitPlanMode asked_tool.ExitPlanMode mode.plan", "trace 040",
          "the plan is asked for; approval leaves plan mode (`system/status` with the mode), and the file is written",
          plan_is_approved),
)  # fmt: skip
async def plan(engine: EngineDriver) -> None:
    """A plan is approved; a file is written afterwards."""
    engine.on("can_use_tool", allow)
    engine.model.play(
        use("ExitPlanMode", {"plan": PLAN}, "toolu_plan"), write(engine, "after.txt", "toolu_after"), say("ok")
    )
    await engine.turn("go", *ASK, "--permission-mode", "plan")
    engine.keep("after.txt")


@scenario(
    "plan-rejected",
    check("mode.plan asked_tool.ExitPlanMode", "trace 041",
          "the message reaches the model, plan mode stays, and nothing is written",
          tool_fails("toolu_plan", "Revise step one"), not_made("never.txt")),
)  # fmt: skip
async def plan_rejected(engine: EngineDriver) -> None:
    """A plan is sent back; a file is not written."""
    engine.on("can_use_tool", {"behavior": "deny", "message": "Revise step one"})
    engine.model.play(
        use("ExitPlanMode", {"plan": PLAN}, "toolu_plan"), write(engine, "never.txt", "toolu_never"), say("ok")
    )
    await engine.turn("go", *ASK, "--permission-mode", "plan")
    engine.keep("never.txt")


def question_is_asked(log: ScenarioLog) -> None:
    asked = log.asked("can_use_tool")
    need(len(asked) == 2 and asked[0].get("tool_name") == "AskUserQuestion", f"{asked}; {log.summary()}")
    need("Beet" in str(asked[0].get("input")), asked[0])
    need("Beet" in str(log.tool_result("toolu_q").get("content")), log.tool_result("toolu_q"))
    need(log.tool_result("toolu_skipped").get("is_error") is True, log.tool_result("toolu_skipped"))


@scenario(
    "question",
    check("tool.AskUserQuestion asked_tool.AskUserQuestion", "traces 044 and 045",
          "can_use_tool has the question and its options; the answer reaches the model; a skipped one is an error",
          question_is_asked),
)  # fmt: skip
async def question(engine: EngineDriver) -> None:
    """A question with an answer, then one that is skipped."""

    def answer(request: dict[str, object]) -> dict[str, object]:
        if request.get("tool_use_id") == "toolu_skipped":
            return {"behavior": "deny", "message": "User skipped the question"}
        given = request.get("input")
        return {"behavior": "allow", "updatedInput": {**(given if isinstance(given, dict) else {}),
                                                      "answers": {"Which one?": "Beet"}}}  # fmt: skip

    engine.on("can_use_tool", answer)
    engine.model.play(
        use("AskUserQuestion", {"questions": [QUESTION]}, "toolu_q"),
        use("AskUserQuestion", {"questions": [QUESTION]}, "toolu_skipped"),
        say("ok"),
    )
    await engine.turn("go", *ASK)
