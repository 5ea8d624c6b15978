"""Measure how soon `--stdio` answers with a large database.

    python bench/stdio_start.py                       # 100 MB, 10 runs
    python bench/stdio_start.py --megabytes 10 --runs 3 --parley ./parley

A database with one long conversation is created once, and the engine is started on it repeatedly. A time starts before
the spawn and ends when our read returns the line:

    status    the first status reply
    prompt    the result of a first prompt, which opens the session

On a busy machine the processor time of the whole run ("cpu") says more than the clock.
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

from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.sqlite import SqliteStore

STATUS = b'{"type":"control","action":"status"}\n'
PROMPT = b'{"type":"user","message":{"role":"user","content":"say Hi"}}\n'
TEXT_BYTES = 4000
SESSION = "6f1c2a34-5b6d-4e7f-8a9b-0c1d2e3f4a5b"
AT = "2027-01-15T08:00:00.000Z"


def fill(path: Path, megabytes: int) -> int:
    """Create a database of at least this size and return its bytes."""
    log = SqliteStore(
        path, EntryContext(cwd=str(path.parent), version="bench", entrypoint="bench", git_branch="")
    ).create(SESSION)
    seq, text = 0, ("word " * (TEXT_BYTES // 5)).strip()
    while True:
        for kind in ("user", "assistant"):
            content = text if kind == "user" else [{"type": "text", "text": text}]
            line = {"type": kind, "message": {"role": kind, "content": content}, "uuid": f"{kind}-{seq}"}
            log.append(Entry(seq=seq, kind=kind, at=AT, message=line, context={}))
            seq += 1
        size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if part.is_file())
        if size >= megabytes * 1_000_000:
            break
    log.close()
    return size


def seconds_to(engine: list[str], folder: Path, data: bytes, kind: str) -> tuple[float, float]:
    """Seconds by the clock to the line, and processor seconds to the exit."""
    environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "IS_SANDBOX": "1"}
    before, started = children_seconds(), time.perf_counter()
    with subprocess.Popen(
        engine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(data)
        process.stdin.flush()
        for line in process.stdout:
            found = json.loads(line)
            if kind in (found.get("subtype"), found.get("type")):
                took = time.perf_counter() - started
                break
        else:
            raise SystemExit(f"{engine[0]} never sent {kind}")
        process.stdin.close()
        process.stdout.read()
    return took, children_seconds() - before


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parley", default=str(Path(sys.executable).with_name("parley")))
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = fill(folder / "agent.db", options.megabytes)
        engine = [options.parley, "--stdio", "--db", str(folder / "agent.db"), "--model", "offline"]
        sys.stdout.write(f"a database of {size / 1e6:.0f} MB, {options.runs} runs, ms: best, median, worst, cpu\n")
        for label, data, kind in (("status", STATUS, "status"), ("prompt", PROMPT, "result")):
            seconds_to(engine, folder, data, kind)  # unrecorded: fills the file cache
            runs = [seconds_to(engine, folder, data, kind) for _ in range(options.runs)]
            clock, cpu = sorted(run[0] * 1000 for run in runs), statistics.median(run[1] * 1000 for run in runs)
            figures = (clock[0], statistics.median(clock), clock[-1], cpu)
            sys.stdout.write(label.ljust(8) + "".join(f"{figure:8.0f}" for figure in figures) + "\n")


if __name__ == "__main__":
    main()
