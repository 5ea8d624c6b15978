"""Interrupts in several states, signals, prompts that arrive during a turn, and lines that are no messages."""

from __future__ import annotations

import signal

from parley.conformance.conditions import ends_with, exits_with, line_has, lines_are, not_made, told, tool_fails
from parley.conformance.driver import ASK, BYPASS, EngineDriver, bash, say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need

LONG = "word " * 400
ODD_LINES = (
    "", "   ", "\r", "{}", '{"type":"mystery","x":1}', '{"type":"keep_alive"}', '{"type":"system","subtype":"x"}',
    "[]", "42",
    '{"type":"control_response","response":{"subtype":"success","request_id":"nope","response":{}}}',
    '{"type":"control_cancel_request","request_id":"zz"}',
)  # fmt: skip
BIG = 2_000_000


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


@scenario(
    "odd-lines",
    check("in.anything-else in.keep_alive in.control_cancel_request framing.Blank-lines framing.type "
          "framing.Unknown-fields in.control_response envelope.heartbeat", "traces README, bad input",
          "blank lines, unknown types and answers to nothing are ignored; the prompt after them is answered",
          lines_are("result", 1), line_has("result", result="alive"), exits_with(0)),
)  # fmt: skip
async def odd_lines(engine: EngineDriver) -> None:
    """Lines that mean nothing, then a prompt with CRLF and unknown fields."""
    engine.model.play(say("alive"))
    await engine.start()
    await engine.initialize(unknownField={"x": 1})
    for line in ODD_LINES:
        engine.send(line)
    engine.send('{"type":"user","message":{"role":"user","content":"still there?"},"whatever":[1,2]}\r')
    await engine.result()
    await engine.finish()


@scenario(
    "malformed-line",
    check("input.malformed in.anything-else", "messages.md §3, users.md U-8.3; the recorded engine exits (trace 095)",
          "a line that is not JSON is reported on stderr, and the session continues",
          ends_with(result="alive"), is_advice=True),
)  # fmt: skip
async def malformed_line(engine: EngineDriver) -> None:
    """A torn line, then a prompt."""
    engine.model.play(say("alive"))
    await engine.start()
    await engine.initialize()
    engine.send('{"type":"user", broken')
    engine.user("still there?")
    await engine.result()
    await engine.finish()


@scenario(
    "big-line",
    check("input.big-line framing.Max-line-length", "trace 097",
          "a prompt of 2 MB has a result, good or not, and so has the small one after it",
          lines_are("result", 2), told("a small one")),
)  # fmt: skip
async def big_line(engine: EngineDriver) -> None:
    """A prompt of two million characters, then a small one."""
    engine.model.play(say("got it"), say("two"), say("two"))
    await engine.begin("A" * BIG)
    await engine.result()
    engine.user("a small one")
    await engine.result()
    await engine.finish()


@scenario(
    "end-while-asking",
    check("input.end-while-asking ask.can_use_tool", "trace 098; users.md U-4.2",
          "a question that can no longer be answered is a denial; the turn ends",
          not_made("x.txt"), tool_fails("toolu_q"), ends_with()),
)  # fmt: skip
async def end_while_asking(engine: EngineDriver) -> None:
    """The input ends while the client is asked."""
    engine.model.play(bash("touch x.txt", "toolu_q"), say("ended"))
    await engine.begin("go", *ASK)
    await engine.line("control_request/can_use_tool")
    engine.close_input()
    await engine.result()
    await engine.finish()
    engine.keep("x.txt")


@scenario(
    "nothing-said",
    check("input.nothing exit.turn-s-done-stdin-EOF", "trace 098",
          "an input that ends at once: no line, exit code 0",
          lambda log: need(not log.received() and log.exit_code == 0, log.summary())),
)  # fmt: skip
async def nothing_said(engine: EngineDriver) -> None:
    """The input ends before anything was sent."""
    await engine.start()
    await engine.finish()
