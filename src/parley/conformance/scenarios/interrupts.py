"""Interrupts in several states, signals, and prompts that arrive during a turn."""

from __future__ import annotations

import signal

from parley.conformance.conditions import exits_with, line_has, not_made, tool_fails
from parley.conformance.driver import ASK, BYPASS, EngineDriver
from parley.conformance.model import bash, say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need

LONG = "word " * 400


def is_aborted(line: dict[str, object]) -> bool:
    return str(line.get("terminal_reason")).startswith("aborted_")


def interrupts_stream(log: ScenarioLog) -> None:
    log.answer("interrupt")
    first, second = log.nth("result", 0), log.nth("result", 1)
    need(is_aborted(first), first)
    need(second.get("result") == "after" and second.get("is_error") is False, second)
    answer = next(
        line for line in log.all("control_response") if line["response"]["request_id"] == log.labels["interrupt"]
    )
    need(log.index(answer) < log.index(first), "the interrupt was answered after the result")


@scenario(
    "interrupt-stream",
    check("request.interrupt", "trace 070",
          "the answer, then a result with terminal_reason aborted_*; the next turn is not affected", interrupts_stream),
)  # fmt: skip
async def interrupt_stream(engine: EngineDriver) -> None:
    """An interrupt while the model speaks; the next turn works."""
    engine.model.play(say(LONG, chunk_chars=5, event_delay_ms=40), say("after"))
    await engine.begin("go", "--include-partial-messages")
    await engine.until(lambda line: "text_delta" in str(line.get("event")), "a text delta")
    await engine.ask("interrupt")
    await engine.result()
    engine.user("again")
    await engine.result()
    await engine.finish()


@scenario(
    "interrupt-tool",
    check("interrupt.tool request.interrupt exit.interrupt-control-request", "trace 071; messages.md §11",
          "the command is stopped, its call has an error result, the turn ends as aborted, the next one works",
          tool_fails("toolu_i"), lambda log: need(is_aborted(log.nth("result", 0)), log.nth("result", 0)),
          line_has("result", 1, result="after"), not_made("finished.txt")),
)  # fmt: skip
async def interrupt_tool(engine: EngineDriver) -> None:
    """An interrupt while a command runs."""
    engine.model.play(bash("echo start; sleep 30; touch finished.txt", "toolu_i"), say("after"))
    await engine.begin("go", *BYPASS)
    await engine.tool_use()
    await engine.wait_seconds(0.6)
    await engine.ask("interrupt")
    await engine.result()
    engine.user("again")
    await engine.result()
    engine.keep("finished.txt")
    await engine.finish()


def withdrawn(log: ScenarioLog) -> None:
    asked = log.first("control_request/can_use_tool")
    need(log.first("control_cancel_request").get("request_id") == asked.get("request_id"), log.summary())
    need(not log.files, f"the call ran: {log.files}")
    need(log.nth("result", 1).get("result") == "after", log.nth("result", 1))


@scenario(
    "interrupt-question",
    check("out.control_cancel_request envelope.cancel silence.can_use_tool", "traces README, queue and interrupt",
          "the request is withdrawn by control_cancel_request, and a late answer is ignored", withdrawn),
)  # fmt: skip
async def interrupt_question(engine: EngineDriver) -> None:
    """An interrupt while the client is asked."""
    engine.model.play(bash("touch x.txt", "toolu_q"), say("after"))
    await engine.begin("go", *ASK)
    await engine.line("control_request/can_use_tool")
    await engine.ask("interrupt")
    await engine.result()
    asked = engine.log.all("control_request/can_use_tool")
    engine.reply(asked[0].get("request_id"), {"behavior": "allow", "updatedInput": {"command": "touch late.txt"}})
    engine.user("again")
    await engine.result()
    engine.keep("x.txt", "late.txt")
    await engine.finish()


def queued_arrive(log: ScenarioLog) -> None:
    sent = str([body.get("messages") for body in log.main_requests()])
    need("QUEUED-ONE" in sent and "QUEUED-TWO" in sent, log.summary())
    need(sent.index("QUEUED-ONE") < sent.index("QUEUED-TWO"), "the order changed")
    need(log.exit_code == 0, log.summary())


@scenario(
    "queued-prompt",
    check("turn.queued in.user", "trace 073; users.md U-11.3",
          "prompts that arrive during a turn reach the model, in order, in this turn or the next", queued_arrive),
)  # fmt: skip
async def queued_prompt(engine: EngineDriver) -> None:
    """Two prompts while a command runs."""
    engine.model.play(bash("sleep 1", "toolu_i"), say("one"), say("two"), say("three"))
    await engine.begin("The first prompt", *BYPASS)
    await engine.tool_use()
    engine.user("QUEUED-ONE")
    engine.user("QUEUED-TWO")
    await engine.result()
    await engine.finish()


async def signal_during_command(engine: EngineDriver, number: signal.Signals) -> None:
    """Send a signal while a command runs, and wait for the end of the engine."""
    engine.model.play(bash("echo start; sleep 30", "toolu_i"), say("never"))
    await engine.begin("go", *BYPASS)
    await engine.tool_use()
    await engine.wait_seconds(0.6)
    engine.signal(number)
    await engine.wait_end()


@scenario(
    "sigint",
    check("exit.SIGINT", "cli.md §4", "the process ends with 0, and the command is gone", exits_with(0)),
)  # fmt: skip
async def sigint(engine: EngineDriver) -> None:
    """SIGINT while a command runs."""
    await signal_during_command(engine, signal.SIGINT)


@scenario(
    "sigterm",
    check("exit.SIGTERM-while-a-tool-runs-MEAS-original-clients exit.SIGTERM-from-close", "cli.md §4",
          "the process ends with 143, and the command is gone", exits_with(143, -15)),
)  # fmt: skip
async def sigterm(engine: EngineDriver) -> None:
    """SIGTERM while a command runs."""
    await signal_during_command(engine, signal.SIGTERM)
