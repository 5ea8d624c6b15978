"""Measure what a turn costs a running engine, per model backend.

    python bench/turns.py                                     # instructions of a turn, a Read trip, a stream event
    python bench/turns.py --backend chat --only read
    python bench/turns.py --messages 10,1000,10000,100000     # a turn in resumed sessions of these sizes
    python bench/turns.py --python /path/to/python ...        # another environment that has parley installed

Instructions are counted by valgrind, as the difference between a process with some turns and one with more; they do
not depend on the load of the machine. A turn in a long session is measured as processor time (the scheduler's count)
and by the clock, as the median of several turns. Linux only.

See also: `model_server.py` is the model, `engine_process.py` runs an engine, `instructions.py` counts a start.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_process import Engine, EngineProcess, initialize_line, start_engine, user_line, wait
from engines import STREAM, model, ms, result_time
from long_sessions import SESSION, message
from model_server import prompt, read_prompt

BACKENDS = {
    "messages": ("--model", "claude-sonnet-4-5"),
    "chat": ("--model", "openai:bench"),
    "responses": ("--model", "openai-responses:bench"),
}
SOURCES = Path(__file__).parents[1] / "src"
RUN = ("-c", "from parley.cli.main import run; run()")
FEW, MANY = 5, 25
"""How many turns are run for a difference."""
DELTAS = 20_000
TIMED_TURNS = 9
FILE = "a.txt"


@contextmanager
def running(
    python: str, backend: str, base_url: str, *flags: str, counter: tuple[str, ...] = (), messages: int = 0
) -> Iterator[EngineProcess]:
    """An engine whose session has this many messages."""

    def prepare(folder: Path) -> dict[str, str]:
        (folder / "cwd" / FILE).write_text("one\ntwo\nthree\n")
        if messages:
            from parley.compose.composer import Composer
            from parley.protocol.options import CliOptions

            log = (
                Composer(CliOptions(), {"HOME": str(folder / "home")}, str(folder / "cwd"))
                .stores.store()
                .create(SESSION)
            )
            for seq in range(messages):
                log.append(message(seq, SESSION))
            log.close()
        return {
            "OPENAI_BASE_URL": f"{base_url}/v1",
            "DISABLE_AUTO_COMPACT": "1",
            "PYTHONPATH": str(SOURCES) if python == sys.executable else "",
            "PYTHONHASHSEED": "0",
        }

    resumed = ("--resume", SESSION) if messages else ()
    engine = Engine(backend, (*counter, python, *RUN))
    with start_engine(engine, (*STREAM, *BACKENDS[backend], *flags, *resumed), base_url, prepare=prepare) as live:
        live.send(initialize_line())
        yield live


def run_turns(live: EngineProcess, texts: list[str]) -> list[float]:
    """The milliseconds of each turn."""
    taken = []
    for number, text in enumerate(texts, 1):
        sent_at = live.send(user_line(text))
        taken.append(ms(sent_at, result_time(live, number)))
    return taken


def count(python: str, backend: str, base_url: str, texts: list[str], *flags: str) -> int:
    """The instructions of a process that runs these turns."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        counter = (
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            f"--log-file={log}",
        )
        with running(python, backend, base_url, *flags, counter=counter) as live:
            run_turns(live, texts)
            live.close_input()
            wait([live], lambda live: live.exited_at > 0, "exit")
        found = re.search(r"refs:\s+([\d,]+)", log.read_text())
        assert found is not None
        return int(found[1].replace(",", ""))


def count_turns(python: str, backend: str, base_url: str, text: str) -> float:
    count(python, backend, base_url, [text])  # the first run writes bytecode files
    few, many = (count(python, backend, base_url, [text] * turns) for turns in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def count_turn(python: str, backend: str, base_url: str) -> str:
    return f"{count_turns(python, backend, base_url, prompt(1)) / 1e6:.2f} M per turn"


def count_read(python: str, backend: str, base_url: str) -> str:
    """A Read turn has two model calls; the trip is what it has more than a plain turn."""
    plain, read = (count_turns(python, backend, base_url, text) for text in (prompt(1), read_prompt(FILE)))
    return f"{(read - plain) / 1e6:.2f} M per Read trip ({read / 1e6:.2f} M per turn with one)"


def count_stream(python: str, backend: str, base_url: str) -> str:
    few, many = (
        count(python, backend, base_url, [prompt(1), prompt(deltas)], "--include-partial-messages")
        for deltas in (2, DELTAS + 2)
    )
    return f"{(many - few) / DELTAS / 1e3:.2f} k per stream event"


MEASURES = {"turn": count_turn, "read": count_read, "stream": count_stream}


def measure_long(python: str, backend: str, base_url: str, messages: int) -> str:
    with running(python, backend, base_url, messages=messages) as live:
        run_turns(live, [prompt(1)])
        cpu, clock = [], []
        for number in range(2, TIMED_TURNS + 2):
            before = cpu_ms(live)
            sent_at = live.send(user_line(prompt(1)))
            clock.append(ms(sent_at, result_time(live, number)))
            cpu.append(cpu_ms(live) - before)
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{live.process.pid}/status").read_text())
        assert peak is not None
    rows = f"{statistics.median(cpu):7.2f} ms of processor time, {statistics.median(clock):7.2f} ms by the clock"
    return f"{messages:7,} messages: {rows} (best {min(clock):.2f}), peak {int(peak[1]) / 1024:.0f} MB"


def cpu_ms(live: EngineProcess) -> float:
    """The time that the process's threads ran."""
    tasks = Path(f"/proc/{live.process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--backend", default=",".join(BACKENDS), help="[%(default)s]")
    parser.add_argument("--only", default=",".join(MEASURES), help="[%(default)s]")
    parser.add_argument(
        "--messages", help="sizes of sessions, separated by commas; without it, instructions are counted"
    )
    options = parser.parse_args()
    with model() as base_url:
        for backend in options.backend.split(","):
            for size in map(int, options.messages.split(",") if options.messages else ()):
                sys.stdout.write(f"{backend:10} {measure_long(options.python, backend, base_url, size)}\n")
                sys.stdout.flush()
            for name in () if options.messages else options.only.split(","):
                sys.stdout.write(f"{backend:10} {MEASURES[name](options.python, backend, base_url)}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
