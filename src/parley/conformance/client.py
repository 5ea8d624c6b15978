"""The suite for clients: runs a client's command once for each scenario, with a fake engine as its engine.

The command runs one prompt and ends: with 0 if the turn succeeded, with another code if it did not. It may answer
permission requests, or refuse them. It finds the engine as `claude` on PATH, in CLAUDE_CODE_EXECUTABLE,
CLAUDE_CLI_PATH and PARLEY_ENGINE, or where it has `{engine}` among its words.

The engine is that of `parley fake` (`fake/`): it plays the steps of a check and records the conversation, by
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
import tomllib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from parley.conformance.driver import STDERR_CHARS, STREAM, read_body
from parley.conformance.runner import CheckOutcome, SuiteOutcome, SuitePlan, find_failure, make_outcome
from parley.conformance.scenario import Check, Entry, call
from parley.conformance.scenario_log import Mismatch, need, shown
from parley.errors import UsageError
from parley.fake.scenario import make_scenario
from parley.fake.serve import read_command_line, serve_scenario
from parley.inspector.recorder import ConversationRecorder, make_header
from parley.protocol.base import Json, Struct
from parley.stores.wire_recording import read_wire_recording
from parley.stores.wire_redaction import WireRedactor

VARIABLES = ("CLAUDE_CODE_EXECUTABLE", "CLAUDE_CLI_PATH", "PARLEY_ENGINE")
SENT_CHARS = 700
WITHOUT_IDS = ("keep_alive", "control_request", "control_cancel_request")
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


def answers(log: ClientLog, id: str) -> None:
    """The client answers a control request: with success or an error, under its id."""
    replies = [message.get("response") for message in log.of("control_response")]
    found = [reply for reply in replies if isinstance(reply, dict) and reply.get("request_id") == id]
    need(len(found) == 1, f"{len(found)} answers to {id}; {log.summary()}")
    reply = found[0]
    need(reply.get("subtype") == "success" or isinstance(reply.get("error"), str), reply)
    succeeds(log)


def answer_is_valid(log: ClientLog) -> None:
    answers(log, "ask-1")
    reply = next(each["response"] for each in log.of("control_response"))
    if reply.get("subtype") == "success":
        given = reply.get("response")
        need(isinstance(given, dict) and given.get("behavior") in ("allow", "deny"), reply)


JUDGES: dict[str, Callable[..., None]] = {
    judge.__name__: judge for judge in (succeeds, fails, ends, sends_prompt, flags_are_known, answers, answer_is_valid)
}


class ClientCheck(Check, frozen=True, kw_only=True):
    need: Entry
    start: list[Json] = []
    steps: tuple[Json | str, ...] = ("answer",)
    """Of the turn."""
    result: Json | bool = True


class ClientFile(Struct, frozen=True, forbid_unknown_fields=True):
    steps: dict[str, Json]
    check: list[ClientCheck]


@cache
def read_client_checks() -> tuple[ClientCheck, ...]:
    """All checks, with the steps that only have a name."""
    text = (files("parley.conformance") / "scenarios" / "client.toml").read_text(encoding="utf-8")
    file = msgspec.convert(tomllib.loads(text), ClientFile)
    return tuple(
        msgspec.structs.replace(
            check,
            scenario=check.id.removeprefix("client."),
            steps=tuple(complete(file.steps[step] if isinstance(step, str) else step) for step in check.steps),
            result=complete(check.result),
        )
        for check in file.check
    )


def make_play(check: ClientCheck) -> Json:
    """The scenario of the fake engine, as in a scenario file."""
    turns = [] if check.start else [{"steps": check.steps, "result": check.result}]
    return {"auto_hooks": False, "start": check.start, "turn": turns}


def judge_client(check: ClientCheck, log: ClientLog) -> None:
    """Raises Mismatch."""
    call(check.need, JUDGES, log)


def complete(value: Any) -> Any:
    """The same JSON with the ids of messages, and with nulls, which TOML does not have."""
    if isinstance(value, list):
        return [complete(item) for item in value]
    if not isinstance(value, dict):
        return None if value == "{null}" else value
    given = {key: complete(item) for key, item in value.items()}
    if "send" in given and given["send"]["type"] not in WITHOUT_IDS:
        given["send"] = {**IDS, **given["send"]}
    return given


# Running a client.


async def run_client_suite(
    command: tuple[str, ...], plan: SuitePlan, progress: Callable[[str, int], None] = lambda name, failed: None
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
            outcome = outcomes[check.id] = make_outcome(check, find_failure(judge_client, check, log))
            outcome.sent = shown(make_play(check))[:SENT_CHARS]
            progress(check.id, int(outcome.status == "failed"))

    await asyncio.gather(*(work() for _ in range(max(1, plan.workers))))
    return SuiteOutcome(
        kind="client",
        name=shlex.join(command),
        seconds=round(time.monotonic() - started, 1),
        checks=[outcomes[check.id] for check in chosen],
    )


def select_client_checks(plan: SuitePlan) -> list[ClientCheck]:
    """The checks of a plan, in their order."""
    return [
        check
        for check in read_client_checks()
        if not plan.only or any(fnmatchcase(check.id, each) for each in plan.only)
    ]


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
    (folder / "scenario.json").write_text(json.dumps(make_play(check)), encoding="utf-8")
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
