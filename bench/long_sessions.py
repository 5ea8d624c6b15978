"""Measure large sessions: appending, resuming, opening a locked session, and listing.

    python bench/long_sessions.py                          # 100,000 messages, 1,000 sessions
    python bench/long_sessions.py --messages 2000 --sessions 50 --store sqlite

Appending is timed in ten parts of a session, without fsync; the time must stay flat. Resuming is timed on the
executable, from its start to the first text of the answer (the offline model answers immediately), with its peak
memory. Opening a locked session is timed from the start of the executable to its exit. Listing is timed in a process
that has the stores loaded, on files that were just written; the memory is the additional peak. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from parley.compose.composer import Composer
from parley.protocol.base import Json
from parley.protocol.options import CliOptions
from parley.stores.base import Entry, Store

PARTS = 10
SESSION = str(UUID(int=7))
TEXT = "A sentence of the usual length, as people and models exchange them all day. "
STORES = {"claude": "claude", "folder": "folder", "sqlite": "sqlite:{}/sessions.db"}


def message(seq: int, session_id: str) -> Entry:
    """A prompt or an answer, alternating."""
    at = "2026-01-02T03:04:05.678Z"
    common: Json = {"uuid": str(UUID(int=seq)), "session_id": session_id, "timestamp": at, "parent_tool_use_id": None}
    if seq % 2 == 0:
        inner: Json = {"role": "user", "content": f"{seq}: {TEXT}"}
        return Entry(seq=seq, kind="user", at=at, message={"type": "user", "message": inner, **common})
    usage = {"input_tokens": 10, "output_tokens": 20}
    inner = {"id": f"msg_{seq}", "type": "message", "role": "assistant", "model": "offline", "usage": usage}
    inner |= {"content": [{"type": "text", "text": f"{seq}: {TEXT}"}], "stop_reason": "end_turn", "stop_sequence": None}
    return Entry(seq=seq, kind="assistant", at=at, message={"type": "assistant", "message": inner, **common})


def open_store(name: str, folder: Path) -> Store:
    options = CliOptions(store=STORES[name].format(folder))
    return Composer(options, {"HOME": str(folder)}, str(folder)).stores.store()


def measure_appends(store: Store, messages: int) -> list[float]:
    """Microseconds per append: the median of each tenth of the session."""
    log = store.create(SESSION)
    medians = []
    for part in range(PARTS):
        took = []
        for seq in range(messages * part // PARTS, messages * (part + 1) // PARTS):
            entry = message(seq, SESSION)
            started_at = time.perf_counter_ns()
            log.append(entry)
            took.append((time.perf_counter_ns() - started_at) / 1000)
        medians.append(statistics.median(took))
    log.close()
    return medians


def start(parley: str, name: str, folder: Path) -> subprocess.Popen[bytes]:
    words = ["-p", "--verbose", "--output-format", "stream-json", "--model", "offline", "--resume", SESSION]
    words += ["--store", STORES[name].format(folder), "say Well."]
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    pipe = subprocess.PIPE
    return subprocess.Popen([parley, *words], stdout=pipe, stderr=pipe, cwd=folder, env=environment)


def measure_locked(parley: str, name: str, folder: Path) -> tuple[float, float]:
    """Open a session that another process holds: seconds until the error, and processor seconds."""
    log = open_store(name, folder).open(SESSION)
    started_at = time.perf_counter()
    with start(parley, name, folder) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started_at
    log.close()
    if process.returncode != 1 or f"in use by process {os.getpid()}".encode() not in output:
        raise SystemExit(f"the locked session was opened: {output!r}")
    return seconds, used.ru_utime + used.ru_stime


def measure_resume(parley: str, name: str, folder: Path) -> tuple[float, float, float]:
    """Seconds until the answer starts, processor seconds until the exit, and peak megabytes."""
    started_at = time.perf_counter()
    with start(parley, name, folder) as process:
        assert process.stdout is not None
        seconds = 0.0
        for line in process.stdout:
            if not seconds and json.loads(line)["type"] == "assistant":
                seconds = time.perf_counter() - started_at
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not seconds:
        raise SystemExit(f"the session was not resumed (exit code {process.returncode})")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure_list(name: str, folder: Path, sessions: int) -> tuple[float, float, float]:
    """Milliseconds to list so many sessions, processor milliseconds, and additional megabytes."""
    store = open_store(name, folder)
    for number in range(sessions):
        session_id = str(UUID(int=1000 + number))
        log = store.create(session_id)
        for seq in range(6):
            log.append(message(seq, session_id))
        log.close()
    store.list(limit=1)  # imports are not part of the measurement
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started_at, busy_before = time.perf_counter(), time.process_time()
    found = store.list(str(folder))
    took, busy = ((time.perf_counter() - started_at) * 1000, (time.process_time() - busy_before) * 1000)
    assert len(found) == sessions + 1
    return took, busy, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def plot(medians: list[float]) -> str:
    """A bar per tenth of the session."""
    longest = max(medians)
    bars = ("#" * round(40 * one / longest) for one in medians)
    rows = zip(range(1, PARTS + 1), bars, medians, strict=True)
    return "\n".join(f"{part * 100 // PARTS:3} %  {bar:40} {one:.0f} us" for part, bar, one in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parley", nargs="?", default=str(Path(sys.executable).with_name("parley")))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3, help="report the best of this many runs")
    parser.add_argument("--store", choices=list(STORES), default="claude")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        medians = measure_appends(open_store(options.store, folder), options.messages)
        sys.stdout.write(f"append, {options.messages} messages, median of each tenth:\n{plot(medians)}\n")
        seconds, processor, megabytes = min(
            measure_resume(options.parley, options.store, folder) for _ in range(options.runs)
        )
        total = f"{processor:.2f} s of processor time"
        sys.stdout.write(f"resume to the first text: {seconds:.2f} s ({total}), {megabytes:.0f} MB\n")
        seconds, processor = min(measure_locked(options.parley, options.store, folder) for _ in range(options.runs))
        sys.stdout.write(f"open a locked session: {seconds:.2f} s ({processor:.2f} s of processor time)\n")
        took, busy, more = measure_list(options.store, folder, options.sessions)
        cpu = f"{busy:.0f} ms of processor time"
        sys.stdout.write(f"list {options.sessions} sessions: {took:.0f} ms ({cpu}), {more:.1f} MB more\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
