"""One-shot runs: a prompt among the arguments or on stdin, three output formats, and the version."""

from __future__ import annotations

import json
import re

from parley.conformance.conditions import ends_with, exits_with, told
from parley.conformance.driver import EngineDriver, read_body
from parley.conformance.model import say
from parley.conformance.registry import check, scenario
from parley.conformance.scenario_log import ScenarioLog, need

ANSWER = "The answer is 42."


def output(log: ScenarioLog, run: int = 0) -> str:
    return "\n".join(entry.raw for entry in log.runs[run].entries if not entry.sent)


@scenario(
    "print-text",
    check("flag.print+-p", "trace 001",
          f"stdout is the text {ANSWER!r}; exit code 0",
          lambda log: need(output(log).strip() == ANSWER, f"{output(log)!r}; {log.summary()}"), exits_with(0)),
)  # fmt: skip
async def print_text(engine: EngineDriver) -> None:
    engine.model.play(say(ANSWER))
    await engine.one_shot("--print", "What is it?")


def json_is_printed(log: ScenarioLog) -> None:
    body = read_body(output(log).encode())
    need(body is not None and body.get("type") == "result" and body.get("result") == ANSWER, output(log))
    need(log.exit_code == 0, f"exit code {log.exit_code}")


@scenario(
    "print-json",
    check("output.json flag.output-format", "trace 002", "one JSON object: the result", json_is_printed),
)  # fmt: skip
async def print_json(engine: EngineDriver) -> None:
    engine.model.play(say(ANSWER))
    await engine.one_shot("-p", "What is it?", "--output-format", "json")


@scenario(
    "print-stream",
    check("flag.end-of-flags flag.verbose", "trace 003; cli.md §1",
          "a prompt after `--` that begins with dashes is answered in stream-json",
          told("--what is it?"), ends_with(result=ANSWER), exits_with(0)),
)  # fmt: skip
async def print_stream(engine: EngineDriver) -> None:
    """The prompt after `--`, as old SDKs give it."""
    engine.model.play(say(ANSWER))
    await engine.one_shot("--output-format", "stream-json", "--verbose", "--print", "--", "--what is it?")


def unknown_command_is_an_error(log: ScenarioLog) -> None:
    need(not log.told_model("/no-such:command"), "the command was sent to the model")
    found = log.all("result", run=0)
    need(len(found) == 1 and found[0].get("is_error") is True, log.summary(0))
    need(log.runs[0].exit_code not in (0, None), f"exit code {log.runs[0].exit_code}")
    need(log.told_model("/etc/hosts is odd") and log.runs[1].exit_code == 0, log.summary(1))


@scenario(
    "unknown-command",
    check("command.unknown flag.print+-p",
          "claude-code issue 88387; the original sends it to the model and exits with 0",
          "an unknown slash command is one `result` with `is_error` and an exit code that is not 0, without a model "
          "call; a path is a prompt",
          unknown_command_is_an_error, is_advice=True),
)  # fmt: skip
async def unknown_command(engine: EngineDriver) -> None:
    """A slash command that nothing defines, then a path, which is none."""
    engine.model.play(say(ANSWER), say(ANSWER))
    await engine.one_shot("-p", "/no-such:command with words", "--output-format", "stream-json", "--verbose")
    await engine.one_shot("-p", "/etc/hosts is odd", "--output-format", "stream-json", "--verbose")


def goal_continues_the_turn(log: ScenarioLog) -> None:
    need("goal" in log.first("system/init")["slash_commands"], "init does not list the command")
    need(log.told_model("the tests pass") and log.told_model("TWO-FAIL"), log.summary())
    found = log.all("result")
    need(len(found) == 1 and found[0].get("result") == ANSWER, log.summary())


@scenario(
    "goal",
    check("command.goal init.slash_commands", "the documentation of Claude Code, and CLI 2.1.327",
          "`/goal CONDITION` is a prompt; while a model judges that the condition is not met, the turn continues with "
          "the reason, and it has one result",
          goal_continues_the_turn),
)  # fmt: skip
async def goal(engine: EngineDriver) -> None:
    """A goal that is judged twice: the second time it is met."""
    verdicts = [json.dumps({"ok": ok, "reason": reason}) for ok, reason in ((False, "TWO-FAIL"), (True, "all pass"))]
    engine.model.play(say("Half."), say(verdicts[0]), say(ANSWER), say(verdicts[1]))
    await engine.one_shot("-p", "/goal the tests pass", "--output-format", "stream-json", "--verbose")


@scenario(
    "prompt-on-stdin",
    check("input.text flag.input-format", "trace 008",
          "text on stdin is the prompt, up to its end",
          told("What does stdin say?"), lambda log: need(output(log).strip() == ANSWER, output(log))),
)  # fmt: skip
async def prompt_on_stdin(engine: EngineDriver) -> None:
    engine.model.play(say(ANSWER))
    await engine.start("--print", stream=False)
    engine.send("What does stdin say?")
    await engine.finish()


def version_is_printed(log: ScenarioLog) -> None:
    for run in (0, 1):
        need(re.match(r"\d+\.\d+\.\d+", output(log, run)), f"{output(log, run)!r}; {log.summary()}")
        need(log.runs[run].exit_code == 0, f"exit code {log.runs[run].exit_code}")


@scenario(
    "version",
    check("flag.version+-v", "cli.md §5; trace 009", "stdout begins with X.Y.Z; exit code 0", version_is_printed),
)  # fmt: skip
async def version(engine: EngineDriver) -> None:
    await engine.one_shot("--version")
    await engine.one_shot("-v")
