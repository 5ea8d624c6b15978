"""Lines on stdin that are empty, unknown, malformed or huge."""

from __future__ import annotations

from parley.conformance.driver import ASK, EngineDriver
from parley.conformance.model import bash, say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need

ODD_LINES = (
    "", "   ", "\r", "{}", '{"type":"mystery","x":1}', '{"type":"keep_alive"}', '{"type":"system","subtype":"x"}',
    "[]", "42",
    '{"type":"control_response","response":{"subtype":"success","request_id":"nope","response":{}}}',
    '{"type":"control_cancel_request","request_id":"zz"}',
)  # fmt: skip
BIG = 2_000_000


@scenario("odd-lines")
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


@check(
    "in.anything-else", "in.keep_alive", "in.control_cancel_request", "framing.Blank-lines", "framing.type",
    "framing.Unknown-fields", "in.control_response", "envelope.heartbeat", on="odd-lines",
    basis="traces README, bad input",
    expects="blank lines, unknown types and answers to nothing are ignored; the prompt after them is answered",
)  # fmt: skip
def odd_lines_ignored(log: ScenarioLog) -> None:
    need(len(log.all("result")) == 1 and log.first("result").get("result") == "alive", log.summary())
    need(log.exit_code == 0, log.summary())


@scenario("malformed-line")
async def malformed_line(engine: EngineDriver) -> None:
    """A torn line, then a prompt."""
    engine.model.play(say("alive"))
    await engine.start()
    await engine.initialize()
    engine.send('{"type":"user", broken')
    engine.user("still there?")
    await engine.result()
    await engine.finish()


@check(
    "input.malformed", "in.anything-else", on="malformed-line", is_advice=True,
    basis="messages.md §3, users.md U-8.3; the recorded engine exits (trace 095)",
    expects="a line that is not JSON is reported on stderr, and the session continues",
)  # fmt: skip
def malformed_survived(log: ScenarioLog) -> None:
    need(log.last("result").get("result") == "alive", log.summary())


@scenario("big-line")
async def big_line(engine: EngineDriver) -> None:
    """A prompt of two million characters, then a small one."""
    engine.model.play(say("got it"), say("two"), say("two"))
    await engine.start()
    await engine.initialize()
    engine.user("A" * BIG)
    await engine.result()
    engine.user("a small one")
    await engine.result()
    await engine.finish()


@check(
    "input.big-line", "framing.Max-line-length", on="big-line", basis="trace 097",
    expects="a prompt of 2 MB has a result, good or not, and so has the small one after it",
)  # fmt: skip
def big_line_read(log: ScenarioLog) -> None:
    need(len(log.all("result")) == 2, log.summary())
    need(log.told_model("a small one"), "the second prompt did not reach the model")


@scenario("end-while-asking")
async def end_while_asking(engine: EngineDriver) -> None:
    """The input ends while the client is asked."""
    engine.model.play(bash("touch x.txt", "toolu_q"), say("ended"))
    await engine.start(*ASK)
    await engine.initialize()
    engine.user("go")
    await engine.line("control_request/can_use_tool")
    engine.close_input()
    await engine.result()
    await engine.finish()
    engine.keep("x.txt")


@check(
    "input.end-while-asking", "ask.can_use_tool", on="end-while-asking", basis="trace 098; users.md U-4.2",
    expects="a question that can no longer be answered is a denial; the turn ends",
)  # fmt: skip
def lost_answer_denies(log: ScenarioLog) -> None:
    need("x.txt" not in log.files, "the command ran without an answer")
    need(log.tool_result("toolu_q").get("is_error") is True, log.tool_result("toolu_q"))
    log.last("result")


@scenario("nothing-said")
async def nothing_said(engine: EngineDriver) -> None:
    """The input ends before anything was sent."""
    await engine.start()
    await engine.finish()


@check(
    "input.nothing", "exit.turn-s-done-stdin-EOF", on="nothing-said", basis="trace 098",
    expects="an input that ends at once: no line, exit code 0",
)  # fmt: skip
def silent_end(log: ScenarioLog) -> None:
    need(not log.received() and log.exit_code == 0, log.summary())
