"""Runs a client's command once for each scenario, with the fake engine as its engine.

The command finds the engine as `claude` on PATH, in CLAUDE_CODE_EXECUTABLE, CLAUDE_CLI_PATH and PARLEY_ENGINE, or where
it has `{engine}` among its words. It must run one prompt and end.
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
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from parley.conformance.client.scenarios import CHECKS, ClientCheck, ClientLog
from parley.conformance.driver import STDERR_CHARS
from parley.conformance.registry import read_behaviours
from parley.conformance.runner import CheckOutcome, Plan, SuiteOutcome
from parley.conformance.scenario_log import Mismatch, shown

VARIABLES = ("CLAUDE_CODE_EXECUTABLE", "CLAUDE_CLI_PATH", "PARLEY_ENGINE")
SENT_CHARS = 700


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
            outcomes[check.id] = judge_client(check, log)
            progress(check.id, int(outcomes[check.id].status == "failed"))

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
    """Run the command with one scenario, and read what the fake engine wrote down."""
    folder = Path(tempfile.mkdtemp(prefix="parley-conform-client-"))
    try:
        engine = write_engine(folder, check)
        words = [word.replace("{engine}", str(engine)) for word in command]
        env = {**os.environ, **dict.fromkeys(VARIABLES, str(engine)), "HOME": str(folder)}
        env["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        log = await run_command(words, env, deadline_seconds)
        read_notes(folder / "log.ndjson", log)
        return log
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_engine(folder: Path, check: ClientCheck) -> Path:
    """Write the scenario and an executable that plays it."""
    steps, log = folder / "steps.json", folder / "log.ndjson"
    steps.write_text(json.dumps(check.steps), encoding="utf-8")
    engine = folder / "claude"
    source = Path(__file__).with_name("fake_engine.py")
    lines = (
        "#!/bin/sh",
        f"export CONFORM_STEPS={shlex.quote(str(steps))} CONFORM_LOG={shlex.quote(str(log))}",
        f'exec {shlex.quote(sys.executable)} -S {shlex.quote(str(source))} "$@"',
    )
    engine.write_text("\n".join(lines) + "\n", encoding="utf-8")
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
        stdout, stderr = await asyncio.wait_for(reading, 5)
        log.stdout = stdout.decode(errors="replace")[-STDERR_CHARS:]
        log.stderr = stderr.decode(errors="replace")[-STDERR_CHARS:]
    return log


def read_notes(path: Path, log: ClientLog) -> None:
    """Read what the fake engine wrote down."""
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                note = json.loads(line)
                if note["kind"] == "argv":
                    log.argv = note["value"]
                elif note["kind"] == "received" and isinstance(note["value"], dict):
                    log.received.append(note["value"])
                elif note["kind"] == "missed":
                    log.missed.append(note["value"])
                elif note["kind"] == "eof":
                    log.has_eof = True


def judge_client(check: ClientCheck, log: ClientLog) -> CheckOutcome:
    behaviour = read_behaviours()[check.rows[0]]
    outcome = CheckOutcome(
        id=check.id,
        rows=list(check.rows),
        area=behaviour.area,
        level=behaviour.level,
        status="passed",
        scenario=check.id.removeprefix("client."),
        expected=check.expects,
        sent="\n".join(shown(step)[:160] for step in check.steps)[:SENT_CHARS],
        basis=check.basis,
    )
    try:
        check.judge(log)
    except Mismatch as exc:
        outcome.status, outcome.came = "failed", str(exc)
    except Exception as exc:  # a check must not rely on the shape of what a client sends
        outcome.status, outcome.came = "failed", f"{type(exc).__name__}: {exc}; {log.summary()}"
    return outcome
