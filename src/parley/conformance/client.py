"""The suite for clients: runs a client's command once for each scenario, with a fake engine as its engine.

The command runs one prompt and ends: with 0 if the turn succeeded, with another code if it did not. It may answer
permission requests, or refuse them. It finds the engine as `claude` on PATH, in CLAUDE_CODE_EXECUTABLE,
CLAUDE_CLI_PATH and PARLEY_ENGINE, or where it has `{engine}` among its words.

The engine is that of `parley fake` (`testing/fake/`): it plays the steps of a check and records the conversation, by
which the client is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from parley.conformance.driver import STDERR_CHARS, STREAM, read_body
from parley.conformance.registry import CheckRow
from parley.conformance.runner import CheckOutcome, Plan, SuiteOutcome, find_failure, make_outcome
from parley.conformance.scenario_log import Mismatch, need, shown
from parley.errors import UsageError
from parley.inspector.recorder import ConversationRecorder, make_header
from parley.inspector.recording import read_wire_recording
from parley.inspector.redaction import WireRedactor
from parley.protocol.base import Json, Struct
from parley.testing.fake.scenario import make_scenario
from parley.testing.fake.serve import read_command_line, serve_scenario

VARIABLES = ("CLAUDE_CODE_EXECUTABLE", "CLAUDE_CLI_PATH", "PARLEY_ENGINE")
SENT_CHARS = 700
ANSWER = "CONFORM-ANSWER-42"
LONG_LINE_BYTES = 2 << 20
IDS = {"session_id": "11111111-2222-4333-8444-555555555555", "uuid": "11111111-2222-4333-8444-000000000000"}


class ClientLog(Struct, kw_only=True):
    """What the engine received, and what became of the client."""

    argv: list[str] = []
    received: list[Json] = []
    stderr: str = ""
    exit_code: int | None = None
    """None if it had to be killed."""

    def of(self, kind: str) -> list[Json]:
        return [message for message in self.received if message.get("type") == kind]

    def summary(self) -> str:
        kinds = [str(message.get("type")) for message in self.received]
        ended = "killed at the deadline" if self.exit_code is None else f"exit code {self.exit_code}"
        tail = self.stderr.strip().splitlines()[-1:] or [""]
        return f"the client sent {', '.join(kinds) or 'nothing'}; {ended}; {tail[0][:200]}"


class ClientCheck(CheckRow, frozen=True, kw_only=True):
    """A scenario and what is expected of the client in it."""

    judge: Callable[[ClientLog], None]
    play: Json
    """The scenario of the fake engine, as in a scenario file."""


# What is expected of a client.


def succeeds(log: ClientLog) -> None:
    need(log.of("user"), log.summary())
    need(log.exit_code == 0, log.summary())


def fails(log: ClientLog) -> None:
    need(log.exit_code not in (0, None), log.summary())


def ends(log: ClientLog) -> None:
    need(log.exit_code is not None, log.summary())


def sends_prompt(log: ClientLog) -> None:
    lines = log.of("user")
    need(len(lines) == 1, log.summary())
    message = lines[0].get("message")
    need(isinstance(message, dict) and message.get("role") == "user" and message.get("content"), lines[0])
    succeeds(log)


def flags_are_known(log: ClientLog) -> None:
    words = " ".join(log.argv)
    for flag in ("--output-format", "--input-format"):
        if f"{flag} stream-json" not in words and f"{flag}=stream-json" not in words:
            raise Mismatch(f"no {flag} stream-json in {log.argv}")


def answers(id: str) -> Callable[[ClientLog], None]:
    """The client answers a control request: with success or an error, under its id."""

    def judge(log: ClientLog) -> None:
        replies = [message.get("response") for message in log.of("control_response")]
        found = [reply for reply in replies if isinstance(reply, dict) and reply.get("request_id") == id]
        need(len(found) == 1, f"{len(found)} answers to {id}; {log.summary()}")
        reply = found[0]
        need(reply.get("subtype") == "success" or isinstance(reply.get("error"), str), reply)
        succeeds(log)

    return judge


def answer_is_valid(log: ClientLog) -> None:
    answers("ask-1")(log)
    reply = next(each["response"] for each in log.of("control_response"))
    if reply.get("subtype") == "success":
        given = reply.get("response")
        need(isinstance(given, dict) and given.get("behavior") in ("allow", "deny"), reply)


# What the engine does.


def turn(*steps: Json, **fields: Any) -> Json:
    """A whole turn with steps before its answer. `fields` are those of its result."""
    return {"auto_hooks": False, "turn": [{"steps": [*steps, {"say": ANSWER}], "result": fields or True}]}


def cut_turn(*steps: Json, code: int = 1) -> Json:
    """A turn in which the engine exits."""
    return {"auto_hooks": False, "turn": [{"steps": [*steps, {"exit": code}]}]}


def send(kind: str, **fields: Any) -> Json:
    return {"send": {"type": kind, **IDS, **fields}}


def assistant(*blocks: Json) -> Json:
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": list(blocks),
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    return send("assistant", message=message, parent_tool_use_id=None)


TOOL_USE = assistant({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}})
RESULT_BLOCK = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
TOOL_RESULT = send("user", parent_tool_use_id=None, message={"role": "user", "content": [RESULT_BLOCK]})
ASK = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "toolu_1"}
HOOK = {"subtype": "hook_callback", "callback_id": "hook_0", "input": {"hook_event_name": "Stop"}}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def check(ids: str, basis: str, expects: str, judge: Callable[[ClientLog], None], play: Json) -> ClientCheck:
    id, *rows = ids.split()
    name = id.removeprefix("client.")
    return ClientCheck(id=id, rows=tuple(rows), scenario=name, basis=basis, expects=expects, judge=judge, play=play)


CHECKS = (
    check("client.prompt in.user user.message.role user.message.content", "messages.md §4",
          "one user line with role user and content; exit code 0", sends_prompt, turn()),
    check("client.flags flag.output-format flag.input-format", "cli.md §1",
          "the engine is started with --output-format and --input-format stream-json", flags_are_known, turn()),
    check("client.half-lines framing.Line-one-JSON-object", "messages.md §1",
          "a line that arrives in three parts is one line", succeeds,
          turn({"say": ANSWER, "chunk_bytes": 180, "chunk_delay_ms": 100})),
    check("client.unknown-type framing.type", "users.md U-8.1; PY#599",
          "a line of an unknown type does not end the turn", succeeds,
          turn(send("mystery", x=1), send("rate_limit_event", rate_limit_info={"status": "allowed"}))),
    check("client.unknown-subtype framing.system.subtype", "messages.md §1",
          "an unknown system line does not end the turn", succeeds, turn(send("system", subtype="mystery"))),
    check("client.unknown-fields framing.Unknown-fields", "messages.md §1",
          "unknown fields are tolerated", succeeds, turn(brand_new={"a": [1]}, another=None)),
    check("client.unknown-block assistant.message.content", "messages.md §5.1",
          "an unknown content block does not end the turn", succeeds,
          turn(assistant({"type": "hologram", "data": 1}, {"type": "text", "text": "x"}))),
    check("client.blank-lines framing.Blank-lines", "messages.md §1",
          "blank lines are ignored", succeeds, turn({"raw": "\n\r\n   "})),
    check("client.not-json framing.Non-JSON-on-stdout", "users.md U-1.4",
          "a line that is not JSON is skipped", succeeds, turn({"raw": "a warning of some library"})),
    check("client.long-line framing.Max-line-length", "users.md U-15.2",
          "a line of 2 MB ends the client in an orderly way, if it is too long for it", ends,
          turn({"say": "", "pad_to_bytes": LONG_LINE_BYTES})),
    check("client.keep-alive envelope.heartbeat", "control.md §1",
          "a heartbeat is ignored", succeeds, turn({"send": {"type": "keep_alive"}})),
    check("client.wrong-id envelope.success", "control.md §1",
          "an answer to a request that was never sent is ignored", succeeds,
          turn(send("control_response", response={"subtype": "success", "request_id": "never-sent"}))),
    check("client.permission ask.can_use_tool in.control_response", "control.md §9.1",
          "can_use_tool is answered under its id: allow, deny, or an error", answer_is_valid,
          turn(TOOL_USE, {"request": ASK, "id": "ask-1"}, TOOL_RESULT)),
    check("client.hook ask.hook_callback", "control.md §8.2",
          "hook_callback is answered, with an error if there is no such hook", answers("hook-1"),
          turn({"request": HOOK, "id": "hook-1"})),
    check("client.mcp ask.mcp_message", "control.md §10",
          "mcp_message for an unknown server is answered", answers("mcp-1"),
          turn({"request": {"subtype": "mcp_message", "server_name": "nosuch", "message": LIST_TOOLS}, "id": "mcp-1"})),
    check("client.unknown-request envelope.error", "control.md §1",
          "an unknown control request is answered with an error", answers("odd-1"),
          turn({"request": {"subtype": "mystery_request"}, "id": "odd-1"})),
    check("client.cancelled-request envelope.cancel", "control.md §11",
          "a request that is withdrawn does not end the turn", succeeds,
          turn(TOOL_USE, {"send": {"type": "control_request", "request_id": "ask-9", "request": ASK}},
               {"send": {"type": "control_cancel_request", "request_id": "ask-9"}}, TOOL_RESULT)),
    check("client.error-result exit.is_error-true result.errors", "cli.md §4",
          "an error result is an error of the client: exit code not 0", fails,
          turn(subtype="error_during_execution", is_error=True, result="", errors=["it broke"])),
    check("client.early-exit silence.engine-exits-while-requests-are-open", "control.md §3",
          "an engine that ends at once is reported: exit code not 0, no hang", fails, {"start": [{"exit": 3}]}),
    check("client.exit-in-turn out.result", "cli.md §4",
          "an engine that dies in a turn is reported: exit code not 0, no hang", fails, cut_turn({"say": "half"})),
    check("client.torn-end framing.Truncated-last-line-at-EOF", "messages.md §1",
          "output that ends in the middle of a line: the client ends, with an error", fails,
          cut_turn({"raw": '{"type":"assist', "newline": False})),
    check("client.closes-input silence.close", "control.md §3",
          "after the result the client closes the engine's input, or the engine", ends, turn()),
)  # fmt: skip


# Running a client.


async def run_client_suite(
    command: tuple[str, ...], plan: Plan, progress: Callable[[str, int], None] = lambda name, failed: None
) -> SuiteOutcome:
    """Run the command in every scenario of the plan."""
    started = time.monotonic()
    chosen = select_client_checks(plan)
    outcomes: dict[str, CheckOutcome] = {}
    queue = list(chosen)

    async def work() -> None:
        while queue:
            check = queue.pop(0)
            log = await run_client(command, check, plan.deadline_seconds)
            outcome = outcomes[check.id] = make_outcome(check, find_failure(check.judge, log))
            outcome.sent = shown(check.play)[:SENT_CHARS]
            progress(check.id, int(outcome.status == "failed"))

    await asyncio.gather(*(work() for _ in range(max(1, plan.workers))))
    return SuiteOutcome(
        kind="client",
        name=shlex.join(command),
        seconds=round(time.monotonic() - started, 1),
        checks=[outcomes[check.id] for check in chosen],
    )


def select_client_checks(plan: Plan) -> list[ClientCheck]:
    """The checks of a plan, in their order."""
    return [check for check in CHECKS if not plan.only or any(fnmatchcase(check.id, each) for each in plan.only)]


async def run_client(command: tuple[str, ...], check: ClientCheck, deadline_seconds: float) -> ClientLog:
    """Run the command with one scenario, and read what the engine recorded."""
    folder = Path(tempfile.mkdtemp(prefix="parley-conform-client-"))
    try:
        engine = write_engine(folder, check)
        words = [word.replace("{engine}", str(engine)) for word in command]
        env = {**os.environ, **dict.fromkeys(VARIABLES, str(engine)), "HOME": str(folder)}
        env["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        log = await run_command(words, env, deadline_seconds)
        read_conversations(folder, log)
        return log
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_engine(folder: Path, check: ClientCheck) -> Path:
    """Write the scenario and an executable that plays it."""
    (folder / "scenario.json").write_text(json.dumps(check.play), encoding="utf-8")
    engine = folder / "claude"
    words = shlex.join([sys.executable, "-P", "-m", __name__, str(folder)])
    engine.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    engine.chmod(0o755)
    return engine


async def run_command(words: list[str], env: dict[str, str], deadline_seconds: float) -> ClientLog:
    """Run the client to its end or the deadline, and kill what it started."""
    log, pipe = ClientLog(), asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError as exc:
        log.stderr = f"the client could not be started: {exc}"
        return log
    reading = asyncio.ensure_future(process.communicate())
    done, _ = await asyncio.wait({reading}, timeout=deadline_seconds)
    if done:
        log.exit_code = process.returncode
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        _, stderr = await asyncio.wait_for(reading, 5)
        log.stderr = stderr.decode(errors="replace")[-STDERR_CHARS:]
    return log


def read_conversations(folder: Path, log: ClientLog) -> None:
    """Add what the engine recorded to the log. A recording is cut if the client ended the engine."""
    for path in sorted(folder.glob("*.jsonl")):
        with contextlib.suppress(UsageError):  # the engine was ended before it wrote anything
            found = read_wire_recording(path, allow_cut=True)
            log.argv += found.header.command
            bodies = (read_body(line) for line in found.sent_by("client"))
            log.received += [body for body in bodies if body is not None]


def play(folder: str, argv: Sequence[str]) -> int:
    """The engine that the client starts: plays the scenario of a folder and records the conversation in it."""
    scenario = make_scenario(msgspec.json.decode(Path(folder, "scenario.json").read_bytes()), "conformance")
    path = Path(folder, f"{time.monotonic_ns():020d}.jsonl")  # a client may start several engines, one after the other
    redactor = WireRedactor(os.environ)
    recorder = ConversationRecorder(path, make_header(argv, redactor, cwd=os.getcwd()), redactor)
    # It speaks stream-json in any case: a client that forgets to ask for it fails one check, and not all of them.
    line = read_command_line([*argv, *STREAM], os.getcwd())
    return serve_scenario(scenario, line, lambda text: None, recorder)


if __name__ == "__main__":
    sys.exit(play(sys.argv[1], sys.argv[2:]))
