"""can_use_tool in all its answers, and rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parley.conformance.driver import ASK, EngineDriver, ErrorReply
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, fields, require_field, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.protocol.base import Json

TOUCH = bash("touch x.txt", "toolu_touch")
"""A command that asks in the default mode."""


def allow(request: Json) -> Json:
    return {"behavior": "allow", "updatedInput": request.get("input", {})}


def in_turn(*replies: Any) -> Callable[[Json], Any]:
    """Answer with these, one after the other."""
    left = list(replies)

    def answer(request: Json) -> Any:
        given = left.pop(0) if len(left) > 1 else left[0]
        return given(request) if callable(given) else given

    return answer


@scenario("allow")
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


fields(
    "allow", "control_request/can_use_tool", "trace 030",
    {
        "can_use_tool.tool_name": "request.tool_name:s", "can_use_tool.input": "request.input:o",
        "can_use_tool.tool_use_id": "request.tool_use_id:s", "can_use_tool.blocked_path": "request.blocked_path:s0?",
        "can_use_tool.agent_id+decision_reason": "request.decision_reason:s?",
    },
)  # fmt: skip


@check(
    "ask.can_use_tool", "out.control_request", "flag.permission-prompt-tool", "envelope.request", "in.control_response",
    on="allow", basis="trace 030", expects="an allowed command runs; the request has the call's own input and id",
)  # fmt: skip
def allowed(log: ScenarioLog) -> None:
    asked = log.asked("can_use_tool")
    need(asked and asked[0].get("input", {}).get("command") == "touch x.txt", f"{asked}; {log.summary()}")
    need(asked[0].get("tool_use_id") == "toolu_touch", asked[0])
    need("x.txt" in log.files, "the allowed command did not run")
    need(log.last("result").get("permission_denials") == [], log.last("result").get("permission_denials"))


@check(
    "mode.default", "tool_fact.permission-class", on="allow", basis="traces README, permissions",
    expects="a change and a file outside are asked for; `ls` and a file inside are not",
)  # fmt: skip
def default_mode(log: ScenarioLog) -> None:
    asked = [request.get("tool_use_id") for request in log.asked("can_use_tool")]
    need(asked == ["toolu_touch", "toolu_outside"], asked)


@check(
    "can_use_tool.permission_suggestions", on="allow", basis="trace 030; control.md §9.3",
    expects="suggestions are PermissionUpdate objects with a `type`",
)  # fmt: skip
def suggestions(log: ScenarioLog) -> None:
    found = [request.get("permission_suggestions") for request in log.asked("can_use_tool")]
    given = [each for each in found if each is not None]
    need(given, found)
    for each in given:
        need(isinstance(each, list) and all(isinstance(one, dict) and "type" in one for one in each), each)


@scenario("deny")
async def deny_calls(engine: EngineDriver) -> None:
    engine.on("can_use_tool", {"behavior": "deny", "message": "Not on a Tuesday"})
    engine.model.play(TOUCH, say("ok, denied"))
    await engine.turn("go", *ASK)
    engine.keep("x.txt")


@check(
    "permission.deny", "ask.can_use_tool", "tool_fact.denied-call", on="deny", basis="trace 033",
    expects="a denied command does not run; its result is an error with the host's message; the turn continues",
)  # fmt: skip
def denied(log: ScenarioLog) -> None:
    need("x.txt" not in log.files, "the denied command ran")
    found = log.tool_result("toolu_touch")
    need(found.get("is_error") is True and "Not on a Tuesday" in str(found.get("content")), found)
    need(log.last("result").get("result") == "ok, denied", log.last("result"))


@check(
    "permission.denials", "result.permission_denials", on="deny", basis="trace 033",
    expects="permission_denials has the call: tool_name, tool_use_id, tool_input",
)  # fmt: skip
def denial_listed(log: ScenarioLog) -> None:
    found = require_field(log.last("result"), "permission_denials", "a")
    need(len(found) == 1, found)
    need(found[0].get("tool_name") == "Bash" and found[0].get("tool_use_id") == "toolu_touch", found)
    need(found[0].get("tool_input", {}).get("command") == "touch x.txt", found)


@scenario("deny-interrupt")
async def deny_interrupt(engine: EngineDriver) -> None:
    engine.on("can_use_tool", {"behavior": "deny", "message": "Stop now", "interrupt": True})
    engine.model.play(TOUCH, say("never"))
    await engine.turn("go", *ASK)
    engine.keep("x.txt")


@check(
    "permission.deny-interrupt", "ask.can_use_tool", on="deny-interrupt", basis="trace 034",
    expects="the turn ends at once: no further model call, terminal_reason aborted_tools",
)  # fmt: skip
def turn_is_aborted(log: ScenarioLog) -> None:
    need("x.txt" not in log.files, "the denied command ran")
    need(log.last("result").get("terminal_reason") == "aborted_tools", log.last("result"))
    need("never" not in log.texts(), "the model was called again")


@scenario("changed-input")
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


@check(
    "permission.updated-input", "can_use_tool.input", on="changed-input", basis="trace 031",
    expects="the command of `updatedInput` runs instead of the model's",
)  # fmt: skip
def input_is_changed(log: ScenarioLog) -> None:
    need("changed.txt" in log.files and "x.txt" not in log.files, sorted(log.files))


@check(
    "permission.no-updated-input", "ask.can_use_tool", on="changed-input", basis="trace 035",
    expects="`allow` without updatedInput runs the model's own command",
)  # fmt: skip
def own_input(log: ScenarioLog) -> None:
    need(log.facts.get("same") is True, log.summary())


@check(
    "permission.updated-permissions", "permission_update.addRules+replaceRules", "rule.Bash-prefix", on="changed-input",
    basis="trace 032", expects="a rule for the session holds at once: the next such command is not asked for",
)  # fmt: skip
def rule_is_added(log: ScenarioLog) -> None:
    need(len(log.asked("can_use_tool")) == 3, f"{len(log.asked('can_use_tool'))} questions; {log.summary()}")
    need("after.txt" in log.files, sorted(log.files))


@scenario("bad-answers")
async def bad_answers(engine: EngineDriver) -> None:
    """An error, an unknown behaviour, an empty object."""
    engine.on("can_use_tool", in_turn(ErrorReply("callback crashed"), {"behavior": "maybe"}, {}))
    engine.model.play(
        TOUCH, bash("touch y2.txt", "toolu_y2"), bash("touch y3.txt", "toolu_y3"), say("ok")
    )  # fmt: skip
    await engine.turn("go", *ASK)
    engine.keep("x.txt", "y2.txt", "y3.txt")


@check(
    "permission.fails-closed", "ask.can_use_tool", on="bad-answers", basis="trace 036; users.md U-2.4",
    expects="an error, an unknown behaviour and an empty answer all deny; the turn continues",
)  # fmt: skip
def bad_answers_deny(log: ScenarioLog) -> None:
    need(not log.files, f"ran: {sorted(log.files)}")
    need(len(log.last("result").get("permission_denials") or []) == 3, log.last("result"))
    need(log.last("result").get("result") == "ok", log.last("result"))


@scenario("unattended")
async def unattended(engine: EngineDriver) -> None:
    """Without --permission-prompt-tool."""
    engine.model.play(TOUCH, say("ok"))
    await engine.turn("go", "--permission-mode", "default")
    engine.keep("x.txt")


@check(
    "permission.unattended", "flag.permission-mode", on="unattended", basis="trace 038; users.md U-2.8",
    expects="no one is asked and the command does not run; the denial is listed",
)  # fmt: skip
def unattended_denies(log: ScenarioLog) -> None:
    need("x.txt" not in log.files, "the command ran")
    need(not log.asked("can_use_tool"), "the client was asked")
    need(len(log.last("result").get("permission_denials") or []) == 1, log.last("result"))


@scenario("rules")
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


@check(
    "flag.allowedTools+--allowed-tools", "rule.Bash-prefix", on="rules", basis="trace 048",
    expects="`Bash(touch:*)` runs without a question; another command is asked for",
)  # fmt: skip
def allow_rule(log: ScenarioLog) -> None:
    asked = [request.get("tool_use_id") for request in log.asked("can_use_tool")]
    need("q1.txt" in log.files, sorted(log.files))
    need(asked == ["toolu_other"], asked)


@check(
    "flag.disallowedTools+--disallowed-tools", "rule.compound-commands", "rule.Tool+Tool", on="rules",
    basis="trace 048",
    expects="`Bash(rm:*)` never runs, alone or in a compound; a bare `Write` is not offered and does not run",
)  # fmt: skip
def deny_rule(log: ScenarioLog) -> None:
    need("keep.txt" in log.files and "q2.txt" not in log.files and "w.txt" not in log.files, sorted(log.files))
    for id in ("toolu_denied", "toolu_compound", "toolu_write"):
        need(log.tool_result(id).get("is_error") is True, log.tool_result(id))
    need("Write" not in (log.first("system/init").get("tools") or []), "Write is in init.tools")
