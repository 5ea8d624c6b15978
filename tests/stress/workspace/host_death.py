"""The host is killed: engine, commands and servers are gone within 2 s, and the session resumes.

    python -m tests.stress.workspace.host_death                 # 8 states x 10 runs
    python -m tests.stress.workspace.host_death --runs 1 --states bash,hook

Each run starts a real host process, which starts a real engine on pipes, or on sockets as Node does, and brings it
into one of eight states. Then the host gets SIGKILL. What must hold:

    the engine and everything below it is gone within 2 s (by pid and start time), stubborn commands included
    the model is not asked again
    a turn that was running has its end in the transcript
    `parley --resume` finds the session free, and its turn succeeds
    no effect happened twice

The exit code is 0 if all of it held.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.stress.workspace.surviving_processes import Process, descendants, stat_of

Json = dict[str, Any]
ENGINE = str(Path(sys.executable).with_name("parley"))
FLAGS = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
GONE_SECONDS = 2.0
DEADLINE_SECONDS = 60.0
SURVIVAL_SECONDS = 10.0
"""How long those who are late are watched, to tell how late they were."""
WORK = "echo ran >> ran; echo $$ >> pids; touch ready; sleep 600 & echo $! >> pids; wait; sleep 600; echo late >> ran"
STUBBORN = f"trap '' TERM; {WORK}"
SERVER = """
import json, os, subprocess, sys, time, signal
if sys.argv[1] == "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "slow", "version": "1"}}
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "tools/call":
        open("ran", "a").write("ran\\n")
        open("ready", "w").close()
        time.sleep(600)
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
HOST = """
import json, socket, subprocess, sys
kind, first, *argv = sys.argv[1:]
if kind == "pipes":
    engine = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    reading, writing = engine.stdout, engine.stdin
else:
    (ours_in, theirs_in), (ours_out, theirs_out) = socket.socketpair(), socket.socketpair()
    engine = subprocess.Popen(argv, stdin=theirs_in, stdout=theirs_out)
    theirs_in.close(), theirs_out.close()
    reading, writing = ours_out.makefile("rb"), ours_in.makefile("wb")
open("engine", "w").write(f"{engine.pid}\\n")
writing.write(first.encode() + b"\\n")
writing.flush()
with open("heard", "ab", 0) as heard:
    for line in reading:
        heard.write(line)
engine.wait()
"""


class Failed(Exception):
    """A run that did not come as far as the death of its host, or broke a law afterwards."""


@dataclass
class Run:
    """One host, one engine, one folder."""

    folder: Path
    dice: Random
    engine_command: str = ENGINE
    environment: dict[str, str] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    effects: int = 1
    """How many lines the file `ran` has, then and for ever."""
    has_turn: bool = True
    """Whether a turn runs when the host dies."""
    host: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.environment |= {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        self.work = self.dice.choice([WORK, STUBBORN])

    def start(self, prompt: str) -> None:
        line = json.dumps({"type": "user", "message": {"role": "user", "content": prompt}})
        kind = self.dice.choice(["pipes", "sockets"])
        model = [] if "ANTHROPIC_BASE_URL" in self.environment else ["--model", "offline"]
        with (self.folder / "stderr").open("wb") as errors:
            self.host = subprocess.Popen(
                [sys.executable, "-c", HOST, kind, line, self.engine_command, *FLAGS, *model, *self.flags],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )

    def heard(self) -> list[Json]:
        path = self.folder / "heard"
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [json.loads(line) for line in whole.splitlines()]

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            if time.monotonic() > deadline:
                raise Failed(f"no {what}: {self.heard()[-2:]} {(self.folder / 'stderr').read_text()[-800:]}")
            time.sleep(0.01)

    def is_ready(self) -> bool:
        return (self.folder / "ready").exists()

    def has_heard(self, **fields: str) -> bool:
        return any(all(line.get(name) == value for name, value in fields.items()) for line in self.heard())

    def call(self, tool: str, **given: Any) -> str:
        return f"call {tool} {json.dumps(given)}"


# The states.


def idle(run: Run) -> None:
    run.effects, run.has_turn = 0, False
    run.start("say Hi.")
    run.wait_until(lambda: run.has_heard(type="result"), "result")


def bash(run: Run) -> None:
    run.flags += ["--allowedTools", "Bash"]
    run.start(run.call("Bash", command=run.work, timeout=600_000))
    run.wait_until(run.is_ready, "command")


def background(run: Run) -> None:
    run.has_turn = False
    run.flags += ["--allowedTools", "Bash"]
    run.start(run.call("Bash", command=run.work, run_in_background=True) + "\nsay begun")
    run.wait_until(lambda: run.is_ready() and run.has_heard(type="result"), "task and result")


def question(run: Run) -> None:
    run.effects = 0
    run.flags += ["--permission-prompt-tool", "stdio"]
    run.start(run.call("Bash", command="echo ran >> ran"))
    run.wait_until(lambda: run.has_heard(type="control_request"), "question")


def hook(run: Run) -> None:
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": run.work}]}]}
    run.flags += ["--allowedTools", "Bash", "--settings", json.dumps({"hooks": hooks})]
    run.start(run.call("Bash", command="echo called >> ran"))
    run.wait_until(run.is_ready, "hook")


def mcp(run: Run) -> None:
    manner = run.dice.choice(["polite", "stubborn"])
    server = {"command": sys.executable, "args": ["-c", SERVER, manner]}
    run.flags += ["--mcp-config", json.dumps({"mcpServers": {"slow": server}}), "--allowedTools", "mcp__slow"]
    run.start(run.call("mcp__slow__work"))
    run.wait_until(run.is_ready, "call of the server")


def subagent(run: Run) -> None:
    run.flags += ["--allowedTools", "Bash,Agent"]
    inner = run.call("Bash", command=run.work, timeout=600_000)
    run.start(run.call("Agent", description="work", prompt=inner, subagent_type="general-purpose"))
    run.wait_until(run.is_ready, "command of the agent")


def stream(run: Run) -> None:
    """The server says half a word, and is asked again only by the engine that resumes."""
    run.effects = 0
    run.flags += ["--include-partial-messages"]
    run.start("say something long")
    run.wait_until(lambda: run.has_heard(type="stream_event"), "first words")


STATES = {
    "idle": idle,
    "stream": stream,
    "bash": bash,
    "background": background,
    "question": question,
    "hook": hook,
    "mcp": mcp,
    "subagent": subagent,
}


class SlowModel:
    """A Messages API on loopback: the first answer never ends, every later one is whole."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += peer.recv(65536)
            head, _, body = head.partition(b"\r\n\r\n")
            [length] = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            while len(body) < length:
                body += peer.recv(65536)
            self.requests += 1
            first = self.requests == 1
            peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for event in self._events("half a w" if first else "resumed", is_whole=not first):
                peer.sendall(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if first:
                peer.recv(1)  # until the engine closes the connection

    @staticmethod
    def _events(text: str, *, is_whole: bool) -> Iterator[Json]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
        yield {"type": "message_start", "message": message}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        if is_whole:
            yield {"type": "content_block_stop", "index": 0}
            yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
            yield {"type": "message_stop"}


# One run.


@dataclass(frozen=True)
class Seen:
    state: str
    gone_seconds: float
    processes: int
    problems: tuple[str, ...]


def play(state: str, seed: int, engine: str = ENGINE, within_seconds: float = GONE_SECONDS) -> Seen:
    with tempfile.TemporaryDirectory(prefix="host-death-", ignore_cleanup_errors=True) as name, server(state) as model:
        run = Run(Path(name), Random(f"{state} {seed}"), engine)
        if model is not None:
            run.environment |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "a-key-for-tests"}
        watched: set[Process] = set()
        try:
            STATES[state](run)
            watched = everything(run)
            run.host.kill()
            seconds = gone_after(watched, time.monotonic(), within_seconds + SURVIVAL_SECONDS)
            run.host.wait()
            problems = [*late(watched, seconds, within_seconds), *broken(run, model)]
            return Seen(state, seconds, len(watched), tuple(f"{state} {seed}: {problem}" for problem in problems))
        except Failed as exc:
            return Seen(state, 0.0, len(watched), (f"{state} {seed}: {exc}",))
        finally:
            clean_up(run, watched)


@contextmanager
def server(state: str) -> Iterator[SlowModel | None]:
    model = SlowModel() if state == "stream" else None
    yield model
    if model is not None:
        model.close()


def everything(run: Run) -> set[Process]:
    """The engine, and all that is below it."""
    engine = int((run.folder / "engine").read_text())
    stat = stat_of(engine)
    if stat is None:
        raise Failed("the engine is gone before its host")
    return {(engine, int(stat[19])), *descendants(engine)}


def is_running(process: Process) -> bool:
    """A zombie runs no more, whoever it waits for."""
    stat = stat_of(process[0])
    return stat is not None and int(stat[19]) == process[1] and stat[0] != b"Z"


def gone_after(watched: set[Process], started: float, most_seconds: float) -> float:
    """When the last one was gone; those that stay are given up some time later."""
    while any(map(is_running, watched)) and time.monotonic() < started + most_seconds:
        time.sleep(0.005)
    return time.monotonic() - started


def late(watched: set[Process], seconds: float, within_seconds: float) -> Iterator[str]:
    if left := [process for process in watched if is_running(process)]:
        yield f"{len(left)} processes live on"
    elif seconds > within_seconds:
        yield f"gone only after {seconds:.2f} s"


def broken(run: Run, model: SlowModel | None) -> Iterator[str]:
    """What does not hold of the session."""
    [transcript] = run.folder.glob(".claude/projects/*/*.jsonl")
    entries = [json.loads(line) for line in transcript.read_text().splitlines()]
    if model is not None and model.requests != 1:
        yield f"the model was asked {model.requests} times"
    last = [entry["entry"] for entry in entries if entry.get("kind") == "result"][-1:]
    if run.has_turn and not (last and last[0].get("terminal_reason") in ("aborted_tools", "aborted_streaming")):
        yield f"the end of the turn is not in the transcript: {last}"
    argv = [run.engine_command, "--print", "--output-format", "json", "--resume", transcript.stem]
    again = subprocess.run(
        [*argv, *(() if model else ("--model", "offline")), "say resumed"],
        cwd=run.folder,
        env=run.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    told = json.loads(again.stdout) if again.stdout else {}
    if again.returncode != 0 or told.get("result") != "resumed" or told.get("is_error") is not False:
        yield f"it does not resume: {again.returncode} {again.stdout!r} {again.stderr!r}"
    ran = (run.folder / "ran").read_text().split() if (run.folder / "ran").exists() else []
    if ran != ["ran"] * run.effects:
        yield f"what happened: {ran}"


def clean_up(run: Run, watched: set[Process]) -> None:
    """Whatever happened, nothing of ours stays behind."""
    below = watched
    with suppress(AttributeError, OSError, ValueError, Failed):
        below = watched | everything(run)
        run.host.kill()
        run.host.wait()
    for pid, _ in filter(is_running, below):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run_all(
    states: list[str], runs: int, jobs: int, seed: int = 1, engine: str = ENGINE, within_seconds: float = GONE_SECONDS
) -> list[Seen]:
    wanted = [(state, seed + number) for number in range(runs) for state in states]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda one: play(one[0], one[1], engine, within_seconds), wanted))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of each state")
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default=ENGINE)
    given = parser.parse_args()
    seen = run_all(given.states.split(","), given.runs, given.jobs, given.seed, given.engine)
    problems = [problem for one in seen for problem in one.problems]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write("state        runs  processes  median gone  slowest gone  broken\n")
    for state in given.states.split(","):
        of = [one for one in seen if one.state == state]
        times = sorted(one.gone_seconds for one in of)
        sys.stdout.write(
            f"{state:<12} {len(of):4}  {sum(one.processes for one in of):9}  {times[len(times) // 2]:9.2f} s"
            f"  {times[-1]:10.2f} s  {sum(bool(one.problems) for one in of):6}\n"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
