"""Run an engine process, record when its lines arrive, and measure its memory.

    with start_engine(engine, STREAM, base_url) as live:
        live.send(initialize_line() + user_line("short"))
        wait([live], lambda live: live.count("result") > 0, "result")

`send` writes what the pipe takes immediately. `wait` transfers all other bytes, for any number of processes, and always
ends: when all are done, at the deadline, or when an engine exits too early. Leaving the block kills the engine's
process group and removes its directories. Linux only (/proc, pidfd).

`engines.py` and other benchmarks say what is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 60.0
INITIALIZED = "control_response/success"
SUBTYPED = ("system", "control_response")
DISABLED = ("TELEMETRY", "ERROR_REPORTING", "AUTOUPDATER")


@dataclass(frozen=True)
class Engine:
    label: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class EngineError(Exception):
    """The engine did not do what is measured. Other engines continue."""

    def __init__(self, reason: str, stderr: str = "") -> None:
        super().__init__(reason)
        self.stderr = stderr


def kind_of(line: bytes) -> tuple[str, dict[str, Any]]:
    """`system/init`, `result`, ... and the message. Stream events are recognized by their first bytes, for speed."""
    if line.startswith(b'{"type":"stream_event"'):
        return "stream_event", {}
    try:
        message = json.loads(line)
    except ValueError:
        return "", {}
    if not isinstance(message, dict):
        return "", {}
    kind = str(message.get("type"))
    named = message.get("response") if kind == "control_response" else message
    subtype = named.get("subtype") if isinstance(named, dict) and kind in SUBTYPED else None
    return (f"{kind}/{subtype}" if subtype else kind), message


def user_line(text: str) -> bytes:
    line = {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}
    return json.dumps({**line, "session_id": "default"}).encode() + b"\n"


def initialize_line() -> bytes:
    request = {"subtype": "initialize", "hooks": None}
    return json.dumps({"type": "control_request", "request_id": "bench", "request": request}).encode() + b"\n"


def environment(folder: Path, base_url: str) -> dict[str, str]:
    return {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "CLAUDE_CODE_TMPDIR": str(folder / "tmp"),
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{f"DISABLE_{what}": "1" for what in DISABLED},
    }


class EngineProcess:
    """A running engine."""

    def __init__(self, process: subprocess.Popen[bytes], started_at: float, folder: Path) -> None:
        assert process.stdout is not None
        self.process, self.started_at, self.folder = process, started_at, folder
        self.stdin, self.stdout, self.exit_fd = process.stdin, process.stdout, os.pidfd_open(process.pid)
        self.times: dict[str, list[float]] = {}
        self.newest: dict[str, dict[str, Any]] = {}
        self.outbox, self.partial = memoryview(b""), b""
        self.is_closed, self.exited_at = False, 0.0
        if self.stdin:
            os.set_blocking(self.stdin.fileno(), False)

    def send(self, data: bytes) -> float:
        """Write, and leave the rest to `wait`. Returns the time before the write."""
        at = time.perf_counter()
        self.outbox = memoryview(bytes(self.outbox) + data)
        self.write()
        return at

    def write(self) -> None:
        assert self.stdin is not None
        try:
            self.outbox = self.outbox[os.write(self.stdin.fileno(), self.outbox) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.outbox = memoryview(b"")

    def read(self) -> None:
        data = os.read(self.stdout.fileno(), 1 << 20)
        at = time.perf_counter()
        self.is_closed = not data
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            kind, message = kind_of(line)
            self.times.setdefault(kind, []).append(at)
            self.newest[kind] = message

    def read_raw(self, mark: bytes) -> tuple[bytes, float]:
        """Read until the output contains the mark, without parsing. Returns it and the time of the last read."""
        at = time.perf_counter()
        deadline = at + DEADLINE_SECONDS
        chunks, end = [], b""
        while mark not in end:
            if not select.select([self.stdout], [], [], max(0, deadline - at))[0]:
                raise self.error(f"no {mark.decode()} within {DEADLINE_SECONDS:.0f} s")
            if not (data := os.read(self.stdout.fileno(), 1 << 20)):
                raise self.error(f"exited before {mark.decode()}")
            at = time.perf_counter()
            end = end[-len(mark) :] + data
            chunks.append(data)
        return b"".join(chunks), at

    @property
    def result(self) -> dict[str, Any]:
        return self.newest.get("result", {})

    def count(self, kind: str) -> int:
        return len(self.times.get(kind, ()))

    def close_input(self) -> float:
        at = time.perf_counter()
        if self.stdin:
            self.stdin.close()
        return at

    def kill(self) -> None:
        """Kill the group before its leader is reaped, because afterwards the pid may be reused."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.close_input()
        self.stdout.close()
        self.process.wait()
        os.close(self.exit_fd)

    def exit_code(self) -> int:
        """The exit code of an exited process, without reaping it."""
        status = os.waitid(os.P_PIDFD, self.exit_fd, os.WEXITED | os.WNOWAIT)
        return status.si_status if status else 0

    def error(self, reason: str) -> EngineError:
        tail = (self.folder / "stderr").read_text(errors="replace").strip().splitlines()[-5:]
        return EngineError(reason, "\n".join(line[:300] for line in tail))


@contextlib.contextmanager
def start_engine(
    engine: Engine,
    flags: Sequence[str],
    base_url: str,
    stdin: int = subprocess.PIPE,
    prepare: Callable[[Path], Mapping[str, str]] = lambda folder: {},
) -> Iterator[EngineProcess]:
    """Start the engine with new directories. Raises EngineError if it cannot be started.

    `prepare` fills the directories and returns more environment variables.
    """
    with tempfile.TemporaryDirectory(prefix="parley-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for part in ("home", "cwd", "tmp"):
            (folder / part).mkdir()
        env = {**environment(folder, base_url), **prepare(folder), **engine.env}
        argv, out = [*engine.argv, *flags], subprocess.PIPE
        os.sync()  # what was written and deleted before would be part of this engine's first fsync
        with (folder / "stderr").open("wb") as err:
            started_at = time.perf_counter()
            try:
                process = subprocess.Popen(
                    argv, cwd=folder / "cwd", env=env, stdin=stdin, stdout=out, stderr=err, bufsize=0,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as exc:
                raise EngineError(f"cannot be started: {exc}") from None
        live = EngineProcess(process, started_at, folder)
        try:
            yield live
        finally:
            live.kill()


def wait(processes: Sequence[EngineProcess], done: Callable[[EngineProcess], bool], what: str) -> None:
    """Transfer bytes until every process is done. Raises EngineError at the deadline or if an engine exits before."""
    deadline = time.perf_counter() + DEADLINE_SECONDS
    while waiting := [live for live in processes if not done(live)]:
        for live in waiting:
            if live.is_closed and live.exited_at:
                raise live.error(f"exited before {what}, exit code or signal {live.exit_code()}")
        left_seconds = deadline - time.perf_counter()
        if left_seconds <= 0:
            raise waiting[0].error(f"no {what} within {DEADLINE_SECONDS:.0f} s")
        readers = {live.stdout.fileno(): live for live in waiting if not live.is_closed}
        running = {live.exit_fd: live for live in waiting if not live.exited_at}
        writers = {live.stdin.fileno(): live for live in waiting if live.stdin and live.outbox}
        readable, writable, _ = select.select([*readers, *running], writers, [], left_seconds)
        for fd in readable:
            if fd in readers:
                readers[fd].read()
            else:
                running[fd].exited_at = time.perf_counter()
        for fd in writable:
            writers[fd].write()


def process_tree(processes: Sequence[EngineProcess]) -> set[int]:
    """The processes of engines: those we started, their sessions and descendants, and the holders of their output.

    A resident engine is not a descendant: it gets the pipes from the process that we started. What it was forked from
    is part of the engine too, so the ancestors of a holder belong to the tree, unless they are ours.
    """
    roots = {live.process.pid for live in processes}
    pipes = {f"pipe:[{os.fstat(live.stdout.fileno()).st_ino}]" for live in processes}
    parents, sessions, holders = {}, {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process just exited
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            pid = int(folder.name)
            parents[pid], sessions[pid] = int(fields[1]), int(fields[3])
            if any(os.readlink(file) in pipes for file in (folder / "fd").iterdir()):
                holders.add(pid)
    ours = {1, *ancestors(os.getpid(), parents)}
    tree = (roots | {pid for holder in holders - ours for pid in ancestors(holder, parents)}) - ours
    while more := {pid for pid in parents if parents[pid] in tree or sessions[pid] in roots} - tree:
        tree |= more
    return tree


def ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """The process, its parent, and so on."""
    while pid in parents:
        yield pid
        pid = parents[pid]


def memory_mb(processes: Sequence[EngineProcess], file: str, name: str) -> float:
    """The sum of one `Name:  123 kB` line over the process trees."""
    total_kb = 0
    for pid in process_tree(processes):
        with contextlib.suppress(OSError):
            found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
            total_kb += int(found[1]) if found else 0
    return total_kb / 1024


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """The user and system time of each running process, from its CPU clock: /proc/PID/stat counts in steps of 10 ms."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            seconds[pid] = time.clock_gettime(~pid << 3 | 2)  # the id that clock_getcpuclockid(3) returns
    return seconds
