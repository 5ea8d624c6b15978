"""Interrupts in several states, signals, and prompts that arrive during a turn."""

from __future__ import annotations

import signal

from parley.conformance.driver import ASK, BYPASS, EngineDriver
from parley.conformance.model import bash, say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need

LONG = "word " * 400


@scenario("interrupt-stream")
async def interrupt_stream(engine: EngineDriver) -> None:
    """An interrupt while the model speaks; the next turn works."""
    engine.model.play(say(LONG, chunk_chars=5, event_delay_ms=40), say("after"))
    await engine.start("--include-partial-messages")
    await engine.initialize()
    engine.user("go")
    await engine.until(lambda line: "text_delta" in str(line.get("event")), "a text delta")
    await engine.ask("interrupt")
    await engine.result()
    engine.user("again")
    await engine.result()
    await engine.finish()


def is_aborted(line: dict[str, object]) -> bool:
    return str(line.get("terminal_reason")).startswith("aborted_")


@check(
    "request.interrupt", on="interrupt-stream", basis="trace 070",
    expects="the answer, then a result with terminal_reason aborted_*; the next turn is not affected",
)  # fmt: skip
def interrupts_stream(log: ScenarioLog) -> None:
    log.answer("interrupt")
    first, second = log.nth("result", 0), log.nth("result", 1)
    need(is_aborted(first), first)
    need(second.get("result") == "after" and second.get("is_error") is False, second)
    answer = next(
        line for line in log.all("control_response") if line["response"]["request_id"] == log.labels["interrupt"]
    )
    need(log.index(answer) < log.index(first), "the interrupt was answered after the result")


@scenario("interrupt-tool")
async def interrupt_tool(engine: EngineDriver) -> None:
    """An interrupt while a command runs."""
    engine.model.play(bash("echo start; sleep 30; touch finished.txt", "toolu_i"), say("after"))
    await engine.start(*BYPASS)
    await engine.initialize()
    engine.user("go")
    await engine.tool_use()
    await engine.wait_seconds(0.6)
    await engine.ask("interrupt")
    await engine.result()
    engine.user("again")
    await engine.result()
    engine.keep("finished.txt")
    await engine.finish()


@check(
    "interrupt.tool", "request.interrupt", "exit.interrupt-control-request", on="interrupt-tool",
    basis="trace 071; messages.md §11",
    expects="the command is stopped, its call has an error result, the turn ends as aborted, the next one works",
)  # fmt: skip
def interrupts_tool(log: ScenarioLog) -> None:
    need(log.tool_result("toolu_i").get("is_error") is True, log.tool_result("toolu_i"))
    need(is_aborted(log.nth("result", 0)), log.nth("result", 0))
    need(log.nth("result", 1).get("result") == "after", log.nth("result", 1))
    need("finished.txt" not in log.files, "the command ran to its end")


@scenario("interrupt-question")
async def interrupt_question(engine: EngineDriver) -> None:
    """An interrupt while the client is asked."""
    engine.model.play(bash("touch x.txt", "toolu_q"), say("after"))
    await engine.start(*ASK)
    await engine.initialize()
    engine.user("go")
    await engine.line("control_request/can_use_tool")
    await engine.ask("interrupt")
    await engine.result()
    asked = engine.log.all("control_request/can_use_tool")
    engine.reply(asked[0].get("request_id"), {"behavior": "allow", "updatedInput": {"command": "touch late.txt"}})
    engine.user("again")
    await engine.result()
    engine.keep("x.txt", "late.txt")
    await engine.finish()


@check(
    "out.control_cancel_request", "envelope.cancel", "silence.can_use_tool", on="interrupt-question",
    basis="traces README, queue and interrupt",
    expects="the request is withdrawn by control_cancel_request, and a late answer is ignored",
)  # fmt: skip
def withdrawn(log: ScenarioLog) -> None:
    asked = log.first("control_request/can_use_tool")
    need(log.first("control_cancel_request").get("request_id") == asked.get("request_id"), log.summary())
    need(not log.files, f"the call ran: {log.files}")
    need(log.nth("result", 1).get("result") == "after", log.nth("result", 1))


@scenario("queued-prompt")
async def queued_prompt(engine: EngineDriver) -> None:
    """Two prompts while a command runs."""
    engine.model.play(bash("sleep 1", "toolu_i"), say("one"), say("two"), say("three"))
    await engine.start(*BYPASS)
    await engine.initialize()
    engine.user("The first prompt")
    await engine.tool_use()
    engine.user("QUEUED-ONE")
    engine.user("QUEUED-TWO")
    await engine.result()
    await engine.finish()


@check(
    "turn.queued", "in.user", on="queued-prompt", basis="trace 073; users.md U-11.3",
    expects="prompts that arrive during a turn reach the model, in order, in this turn or the next",
)  # fmt: skip
def queued_arrive(log: ScenarioLog) -> None:
    sent = str([body.get("messages") for body in log.main_requests()])
    need("QUEUED-ONE" in sent and "QUEUED-TWO" in sent, log.summary())
    need(sent.index("QUEUED-ONE") < sent.index("QUEUED-TWO"), "the order changed")
    need(log.exit_code == 0, log.summary())


async def signal_during_command(engine: EngineDriver, number: signal.Signals) -> None:
    """Send a signal while a command runs, and wait for the end of the engine."""
    engine.model.play(bash("echo start; sleep 30", "toolu_i"), say("never"))
    await engine.start(*BYPASS)
    await engine.initialize()
    engine.user("go")
    await engine.tool_use()
    await engine.wait_seconds(0.6)
    engine.signal(number)
    await engine.wait_end()


@scenario("sigint")
async def sigint(engine: EngineDriver) -> None:
    """SIGINT while a command runs."""
    await signal_during_command(engine, signal.SIGINT)


@check(
    "exit.SIGINT", on="sigint", basis="cli.md §4", expects="the process ends with 0, and the command is gone",
)  # fmt: skip
def ends_on_sigint(log: ScenarioLog) -> None:
    need(log.exit_code == 0, log.summary())


@scenario("sigterm")
async def sigterm(engine: EngineDriver) -> None:
    """SIGTERM while a command runs."""
    await signal_during_command(engine, signal.SIGTERM)


@check(
    "exit.SIGTERM-while-a-tool-runs-MEAS-original-clients", "exit.SIGTERM-from-close", on="sigterm", basis="cli.md §4",
    expects="the process ends with 143, and the command is gone",
)  # fmt: skip
def ends_on_sigterm(log: ScenarioLog) -> None:
    need(log.exit_code in (143, -15), log.summary())
