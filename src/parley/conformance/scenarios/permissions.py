"""can_use_tool in all its answers, rules, and the permission modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.conformance.conditions import (
    asks_for,
    denials_are,
    ends_with,
    line_has,
    made,
    not_made,
    only_made,
    require_field,
    some_line,
    tool_fails,
    tool_says,
    tool_succeeds,
)
from parley.conformance.driver import ASK, BYPASS, EngineDriver, ErrorReply, bash, say, use
from parley.conformance.registry import check, fields, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.models.script import ScriptedTurn
from parley.protocol.base import Json

TOUCH = bash("touch x.txt", "toolu_touch")
"""A command that asks in the default mode."""
QUESTION = {
    "question": "Which one?", "header": "Pick", "multiSelect": False,
    "options": [{"label": "Apple", "description": "a fruit"}, {"label": "Beet", "description": "a root"}],
}  # fmt: skip
PLAN = "# Plan\n1. Write the file"


def allow(request: Json) -> Json:
    return {"behavior": "allow", "updatedInput": request.get("input", {})}


def in_turn(*replies: Any) -> Callable[[Json], Any]:
    """Answer with these, one after the other."""
    left = list(replies)

    def answer(request: Json) -> Any:
        given = left.pop(0) if len(left) > 1 else left[0]
        return given(request) if callable(given) else given

    return answer


def allowed(log: ScenarioLog) -> None:
    asked = log.asked("can_use_tool")
    need(asked and asked[0].get("input", {}).get("command") == "touch x.txt", f"{asked}; {log.summary()}")
    need(asked[0].get("tool_use_id") == "toolu_touch", asked[0])
    need("x.txt" in log.files, "the allowed command did not run")
    need(log.last("result").get("permission_denials") == [], log.last("result").get("permission_denials"))


def suggestions(log: ScenarioLog) -> None:
    found = [request.get("permission_suggestions") for request in log.asked("can_use_tool")]
    given = [each for each in found if each is not None]
    need(given, found)
    for each in given:
        need(isinstance(each, list) and all(isinstance(one, dict) and "type" in one for one in each), each)


@scenario(
    "allow",
    *fields("control_request/can_use_tool", "trace 030",
        {
            "can_use_tool.tool_name": "request.tool_name:s", "can_use_tool.input": "request.input:o",
            "can_use_tool.tool_use_id": "request.tool_use_id:s",
            "can_use_tool.blocked_path": "request.blocked_path:s0?",
            "can_use_tool.agent_id+decision_reason": "request.decision_reason:s?",
        },
    ),
    check("ask.can_use_tool out.control_request flag.permission-prompt-tool envelope.request "
          "in.control_response", "trace 030",
          "an allowed command runs; the request has the call's own input and id", allowed),
    check("mode.default tool_fact.permission-class", "traces README, permissions",
          "a change and a file outside are asked for; `ls` and a file inside are not",
          asks_for("toolu_touch", "toolu_outside")),
    check("can_use_tool.permission_suggestions", "trace 030; control.md §9.3",
          "suggestions are PermissionUpdate objects with a `type`", suggestions),
)  # fmt: skip
async def allow_calls(engine: EngineDriver) -> None:
    """A command, a file outside and a file inside; every question is allowed."""
    engine.put({"inside.txt": "inside\n"})
    outside = engine.root / "outside.txt"
    outside.write_text("outside\n")
    engine.on("can_use_tool", allow)
    engine.model.play(
        TOUCH,
        use("Read", {"file_path": str(outside)}, "toolu_outside"),
        use("Read", {"file_path": str(engine.cwd / "inside.txt")}, "toolu_inside"),
        bash("ls", "toolu_ls"),
        say("ok"),
    )
    await engine.turn("go", *ASK)
    engine.keep("x.txt")


def denial_listed(log: ScenarioLog) -> None:
    found = require_field(log.last("result"), "permission_denials", "a")
    need(len(found) == 1, found)
    need(found[0].get("tool_name") == "Bash" and found[0].get("tool_use_id") == "toolu_touch", found)
    need(found[0].get("tool_input", {}).get("command") == "touch x.txt", found)


@scenario(
    "deny",
    check("permission.deny ask.can_use_tool tool_fact.denied-call", "trace 033",
          "a denied command does not run; its result is an error with the host's message; the turn continues",
          not_made("x.txt"), tool_fails("toolu_touch", "Not on a Tuesday"), ends_with(result="ok, denied")),
    check("permission.denials result.permission_denials", "trace 033",
          "permission_denials has the call: tool_name, tool_use_id, tool_input", denial_listed),
)  # fmt: skip
async def deny_calls(engine: EngineDriver) -> None:
    engine.on("can_use_tool", {"behavior": "deny", "message": "Not on a Tuesday"})
    engine.model.play(TOUCH, say("ok, denied"))
    await engine.turn("go", *ASK)
    engine.keep("x.txt")


@scenario(
    "deny-interrupt",
    check("permission.deny-interrupt ask.can_use_tool", "trace 034",
          "the turn ends at once: no further model call, terminal_reason aborted_tools",
          not_made("x.txt"), ends_with(terminal_reason="aborted_tools"),
          lambda log: need("never" not in log.texts(), "the model was called again")),
)  # fmt: skip
async def deny_interrupt(engine: EngineDriver) -> None:
    engine.on("can_use_tool", {"behavior": "deny", "message": "Stop now", "interrupt": True})
    engine.model.play(TOUCH, say("never"))
    await engine.turn("go", *ASK)
    engine.keep("x.txt")


@scenario(
    "changed-input",
    check("permission.updated-input can_use_tool.input", "trace 031",
          "the command of `updatedInput` runs instead of the model's", made("changed.txt"), not_made("x.txt")),
    check("permission.no-updated-input ask.can_use_tool", "trace 035",
          "`allow` without updatedInput runs the model's own command",
          lambda log: need(log.facts.get("same") is True, log.summary())),
    check("permission.updated-permissions permission_update.addRules+replaceRules rule.Bash-prefix", "trace 032",
          "a rule for the session holds at once: the next such command is not asked for",
          lambda log: need(len(log.asked("can_use_tool")) == 3, f"{log.asked('can_use_tool')}; {log.summary()}"),
          made("after.txt")),
)  # fmt: skip
async def changed_input(engine: EngineDriver) -> None:
    """The host changes a command, allows one without input, and allows a kind of command for the session."""
    rule = {
        "type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}], "behavior": "allow",
        "destination": "session",
    }  # fmt: skip
    engine.on(
        "can_use_tool",
        in_turn(
            {"behavior": "allow", "updatedInput": {"command": "touch changed.txt"}},
            {"behavior": "allow"},
            lambda request: {**allow(request), "updatedPermissions": [rule]},
            {"behavior": "deny", "message": "asked again"},
        ),
    )
    engine.model.play(
        TOUCH, bash("mkdir same", "toolu_same"), bash("touch granted.txt", "toolu_granted"),
        bash("touch after.txt", "toolu_after"), say("ok"),
    )  # fmt: skip
    await engine.turn("go", *ASK)
    engine.keep("x.txt", "changed.txt", "granted.txt", "after.txt")
    engine.log.facts["same"] = (engine.cwd / "same").is_dir()


@scenario(
    "bad-answers",
    check("permission.fails-closed ask.can_use_tool", "trace 036; users.md U-2.4",
          "an error, an unknown behaviour and an empty answer all deny; the turn continues",
          only_made(), denials_are(3), ends_with(result="ok")),
)  # fmt: skip
async def bad_answers(engine: EngineDriver) -> None:
    """An error, an unknown behaviour, an empty object."""
    engine.on("can_use_tool", in_turn(ErrorReply("callback crashed"), {"behavior": "maybe"}, {}))
    engine.model.play(
        TOUCH, bash("touch y2.txt", "toolu_y2"), bash("touch y3.txt", "toolu_y3"), say("ok")
    )  # fmt: skip
    await engine.turn("go", *ASK)
    engine.keep("x.txt", "y2.txt", "y3.txt")


@scenario(
    "unattended",
    check("permission.unattended flag.permission-mode", "trace 038; users.md U-2.8",
          "no one is asked and the command does not run; the denial is listed",
          not_made("x.txt"), asks_for(), denials_are(1)),
)  # fmt: skip
async def unattended(engine: EngineDriver) -> None:
    """Without --permission-prompt-tool."""
    engine.model.play(TOUCH, say("ok"))
    await engine.turn("go", "--permission-mode", "default")
    engine.keep("x.txt")


@scenario(
    "rules",
    check("flag.allowedTools+--allowed-tools rule.Bash-prefix", "trace 048",
          "`Bash(touch:*)` runs without a question; another command is asked for",
          made("q1.txt"), asks_for("toolu_other")),
    check("flag.disallowedTools+--disallowed-tools rule.compound-commands rule.Tool+Tool", "trace 048",
          "`Bash(rm:*)` never runs, alone or in a compound; a bare `Write` is not offered and does not run",
          made("keep.txt"), not_made("q2.txt", "w.txt"), tool_fails("toolu_denied"), tool_fails("toolu_compound"),
          tool_fails("toolu_write"),
          lambda log: need("Write" not in (log.first("system/init").get("tools") or []), "Write is in init.tools")),
)  # fmt: skip
async def rules(engine: EngineDriver) -> None:
    """Allow and deny rules of the command line, also in compound commands."""
    engine.on("can_use_tool", {"behavior": "deny", "message": "host said no"})
    engine.put({"keep.txt": ""})
    engine.model.play(
        bash("touch q1.txt", "toolu_allowed"), bash("rm keep.txt", "toolu_denied"),
        bash("touch q2.txt && rm keep.txt", "toolu_compound"), bash("mkdir z", "toolu_other"),
        use("Write", {"file_path": str(engine.cwd / "w.txt"), "content": "w"}, "toolu_write"), say("ok"),
    )  # fmt: skip
    await engine.turn("go", *ASK, "--allowedTools", "Bash(touch:*)", "--disallowedTools", "Bash(rm:*),Write")
    engine.keep("q1.txt", "q2.txt", "keep.txt", "w.txt")


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


@scenario(
    "auto-mode",
    check("mode.auto", "trace 050",
          "the mode is accepted, or another one is named, and the turn ends",
          lambda log: need(log.first("system/init").get("permissionMode") in ("auto", "default"), log.summary()),
          ends_with(result="ok")),
)  # fmt: skip
async def auto_mode(engine: EngineDriver) -> None:
    engine.on("can_use_tool", allow)
    engine.model.play(say("ok"))
    await engine.turn("go", *ASK, "--permission-mode", "auto")


@scenario(
    "plan",
    check("tool.ExitPlanMode asked_tool.ExitPlanMode mode.plan", "trace 040",
          "the plan is asked for; approval leaves plan mode (`system/status` with the mode), and the file is written",
          lambda log: need(log.asked("can_use_tool")[0].get("tool_name") == "ExitPlanMode", log.summary()),
          tool_succeeds("toolu_plan"), some_line("system/status", permissionMode="default"), made("after.txt")),
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
