"""Lines on stdin that are empty, unknown, malformed or huge."""

from __future__ import annotations

from parley.conformance.conditions import ends_with, exits_with, line_has, lines_are, not_made, told, tool_fails
from parley.conformance.driver import ASK, EngineDriver
from parley.conformance.model import bash, say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import need

ODD_LINES = (
    "", "   ", "\r", "{}", '{"type":"mystery","x":1}', '{"type":"keep_alive"}', '{"type":"system","subtype":"x"}',
    "[]", "42",
    '{"type":"control_response","response":{"subtype":"success","request_id":"nope","response":{}}}',
    '{"type":"control_cancel_request","request_id":"zz"}',
)  # fmt: skip
BIG = 2_000_000


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
