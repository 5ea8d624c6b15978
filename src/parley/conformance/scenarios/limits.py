"""Turns that end early: limits, a schema, and failures of the model."""

from __future__ import annotations

import json

from parley.conformance.conditions import ends_with, first_line, line_has, require_field, tool_fails
from parley.conformance.driver import BYPASS, EngineDriver
from parley.conformance.model import bash, say, use
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need
from parley.models.script import ScriptedError, ScriptedTurn

SCHEMA = {"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}


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


def alive_after_error(log: ScenarioLog) -> None:
    found = [(line.get("is_error"), line.get("result")) for line in log.all("result")]
    need(len(found) == 2 and found[0][0] is True and found[1] == (False, "Recovered."), f"{found}; {log.summary()}")
    need(log.exit_code == 0, f"exit code {log.exit_code}")


@scenario(
    "api-error-alive",
    check("turn.after-error exit.is_error-true", "cli.md §4; traces README, exit codes",
          "an error result does not end a conversation: the next turn succeeds, and the exit code is 0",
          alive_after_error),
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
