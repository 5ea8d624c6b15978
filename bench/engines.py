"""Measure engine executables side by side, against one model that answers immediately.

    python bench/engines.py ./parley /path/to/claude
    python bench/engines.py parley=./parley "offline=./parley --model offline" --runs 20 --json figures.json
    python bench/engines.py ./parley --quick                  # a smoke test; the figures are rough
    python bench/engines.py ./parley --only warm,stream

An engine is a command, quoted if it has arguments, with an optional label: `label=command`. Each run gets new home,
working and temporary directories and the same few environment variables. The engines take turns within a measurement,
in alternating order and after one unrecorded round, so that noise affects all of them.

A time starts before the spawn or write and ends when our read returns the line. "best" is the smallest sample (the
largest for a rate); "ratio" compares a median with that of the first engine. Memory is summed over the process and its
running children: "peak RSS" adds VmHWM, which counts a shared page twice; PSS divides shared pages. Linux only.

A failing engine gets a row with the reason and the end of its stderr, the others continue, and the exit code is 1.
An error result is a failure; only the long line may be refused.

See also: `model_server.py` is the model, `engine_process.py` runs an engine.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine_process import (
    INITIALIZED,
    Engine,
    EngineError,
    EngineProcess,
    cpu_seconds,
    initialize_line,
    memory_mb,
    start_engine,
    user_line,
    wait,
)
from model_server import prompt

ONE_SHOT = ("--print", "--output-format", "stream-json", "--verbose")
STREAM = (*ONE_SHOT, "--input-format", "stream-json")
TURNS_BEFORE_WARM = 3
FIRST_LINES = {"initialize response": INITIALIZED, "system/init": "system/init", "result": "result"}

Samples = dict[str, list[float]]
"""The samples of a run: "quantity, unit" to values."""


@dataclass(frozen=True)
class Plan:
    """The address of the model, and the number and size of everything."""

    base_url: str = ""
    runs: int = 10
    warm_turns: int = 50
    deltas: int = 20_000
    line_bytes: int = 8 << 20
    processes: int = 16


QUICK = Plan(runs=3, warm_turns=5, deltas=1_000, line_bytes=1 << 20, processes=3)


@dataclass
class Outcome:
    """The samples of one engine in one measurement."""

    samples: Samples = field(default_factory=dict)
    failure: str = ""
    stderr: str = ""
    refused: bool = False


def ms(start: float, end: float) -> float:
    return (end - start) * 1000


def named_engine(text: str) -> Engine:
    """Parse `label=command`. Raises ValueError if the command does not exist."""
    labelled = re.match(r"([\w.-]+)=(.+)", text)
    label, command = labelled.groups() if labelled else ("", text)
    first, *rest = shlex.split(command)
    found = shutil.which(first)
    if found is None:
        raise ValueError(f"no executable {first!r}")
    return Engine(label or " ".join([Path(first).name, *rest]), (os.path.abspath(found), *rest))


def figures(quantity: str, values: Sequence[float], first: Sequence[float] | None) -> str:
    median = statistics.median(values)
    best = max(values) if quantity.endswith("/s") else min(values)
    ratio = f"{median / statistics.median(first):.2f}" if first else "-"
    return f"{median:11,.1f}{best:11,.1f}{ratio:>8}{len(values):>9}"


def table(title: str, outcomes: Mapping[str, Outcome]) -> str:
    """One measurement as text: a row per quantity and engine, then the failures."""
    width = max(map(len, outcomes))
    lines = ["", title, f"  {'':34}{'':{width}}{'median':>11}{'best':>11}{'ratio':>8}{'samples':>9}"]
    first = next(iter(outcomes.values())).samples
    for quantity in dict.fromkeys(name for outcome in outcomes.values() for name in outcome.samples):
        heading = quantity
        for label, outcome in outcomes.items():
            if values := outcome.samples.get(quantity):
                lines.append(f"  {heading:34}{label:{width}}{figures(quantity, values, first.get(quantity))}")
                heading = ""
    for label, outcome in outcomes.items():
        if outcome.failure:
            lines.append(f"  {label}: {'refused' if outcome.refused else 'failed'}: {outcome.failure}")
            lines += [f"    stderr: {line}" for line in outcome.stderr.splitlines()]
    return "\n".join(lines) + "\n"


def result_time(live: EngineProcess, number: int = 1) -> float:
    """Wait for a turn's result. Raises EngineError if it is an error."""
    wait([live], lambda live: live.count("result") >= number, f"result {number}")
    if live.result.get("is_error"):
        reason = live.result.get("result") or live.result.get("errors")
        raise live.error(f"error result: {str(reason)[:200]}")
    return live.times["result"][number - 1]


def first_turn(engine: Engine, plan: Plan) -> Samples:
    with start_engine(engine, STREAM, plan.base_url) as live:
        live.send(initialize_line() + user_line(prompt(1)))
        result_time(live)
        peak_mb = memory_mb([live], "status", "VmHWM")
        closed_at = live.close_input()
        wait([live], lambda live: live.exited_at > 0, "exit")
        samples = {}
        for what, kind in FIRST_LINES.items():
            if not live.count(kind):
                raise live.error(f"no {what}")
            samples[f"spawn to {what}, ms"] = [ms(live.started_at, live.times[kind][0])]
        ended_ms = ms(closed_at, live.exited_at)
        return {**samples, "stdin closed to exit, ms": [ended_ms], "peak RSS of the tree, MB": [peak_mb]}


def warm_turns(engine: Engine, plan: Plan) -> Samples:
    taken = []
    with start_engine(engine, STREAM, plan.base_url) as live:
        live.send(initialize_line())
        for number in range(1, TURNS_BEFORE_WARM + plan.warm_turns + 1):
            sent_at = live.send(user_line(prompt(1)))
            taken.append(ms(sent_at, result_time(live, number)))
    return {"user line to result, ms": taken[TURNS_BEFORE_WARM:]}


def stream(engine: Engine, plan: Plan) -> Samples:
    with start_engine(engine, (*STREAM, "--include-partial-messages"), plan.base_url) as live:
        live.send(initialize_line() + user_line(prompt(1)))
        result_time(live)
        before, cpu_before = live.count("stream_event"), cpu_seconds(live)
        live.send(user_line(prompt(plan.deltas)))
        result_at = result_time(live, 2)
        if (events := live.count("stream_event") - before) < plan.deltas:
            raise live.error(f"{events} stream events for {plan.deltas} deltas")
        return {
            "stream events, /s": [events / (result_at - live.times["stream_event"][before])],
            "CPU time per event, us": [(cpu_seconds(live) - cpu_before) / events * 1e6],
        }


def long_line(engine: Engine, plan: Plan) -> Samples:
    sentence = "The quick brown fox jumps over the lazy dog, line after line after line.\n"
    line = user_line(f"{prompt(1)}\n" + sentence * (plan.line_bytes // (len(sentence) + 1)))
    with start_engine(engine, STREAM, plan.base_url) as live:
        live.send(initialize_line())
        wait([live], lambda live: live.count(INITIALIZED) > 0, "initialize response")
        sent_at = live.send(line)
        try:
            return {"user line to result, ms": [ms(sent_at, result_time(live))]}
        except EngineError as exc:
            if not live.count("result"):
                raise
            after_ms = ms(sent_at, live.times["result"][0])
            raise live.error(f"{exc} (after {after_ms:.0f} ms)", refused=True) from None


def crowd(engine: Engine, plan: Plan) -> Samples:
    with contextlib.ExitStack() as stack:
        processes = []
        for _ in range(plan.processes):
            processes.append(stack.enter_context(start_engine(engine, STREAM, plan.base_url)))
            processes[-1].send(initialize_line() + user_line(prompt(1)))
        wait(processes, lambda live: live.count("result") > 0, "result")
        return {
            "first spawn to last result, ms": [ms(processes[0].started_at, max(map(result_time, processes)))],
            "RSS of all, MB": [memory_mb(processes, "status", "VmRSS")],
            "PSS of all, MB": [memory_mb(processes, "smaps_rollup", "Pss")],
        }


def one_shot(engine: Engine, plan: Plan) -> Samples:
    with start_engine(engine, (*ONE_SHOT, "short"), plan.base_url, subprocess.DEVNULL) as live:
        wait([live], lambda live: live.is_closed and live.exited_at > 0, "exit")
        result_time(live)
        return {"spawn to exit, ms": [ms(live.started_at, live.exited_at)]}


Take = Callable[[Engine, Plan], Samples]
MEASURES: dict[str, tuple[str, Take]] = {
    "first": ("First turn of a new process", first_turn),
    "warm": (f"Warm turn: after {TURNS_BEFORE_WARM} turns, {{warm_turns}} more in one process", warm_turns),
    "stream": ("Streaming: one reply of {deltas:,} deltas, --include-partial-messages", stream),
    "line": ("One user line of {line_bytes:,} bytes", long_line),
    "crowd": ("{processes} processes at once, one turn each", crowd),
    "one-shot": ("One-shot: prompt as an argument", one_shot),
}


def measure(engines: Sequence[Engine], plan: Plan, take: Take) -> dict[str, Outcome]:
    """Run all engines that have not failed, round by round. The first round is not recorded."""
    outcomes = {engine.label: Outcome() for engine in engines}
    for number in range(plan.runs + 1):
        for engine in engines if number % 2 else engines[::-1]:
            outcome = outcomes[engine.label]
            if outcome.failure:
                continue
            try:
                taken = take(engine, plan)
            except EngineError as exc:
                outcome.failure, outcome.stderr, outcome.refused = str(exc), exc.stderr, exc.refused
                continue
            for quantity, values in taken.items() if number else ():
                outcome.samples.setdefault(quantity, []).extend(values)
    return outcomes


@contextlib.contextmanager
def model() -> Iterator[str]:
    """The URL of the model server while it runs. It ends when its stdin is closed."""
    argv = [sys.executable, str(Path(__file__).with_name("model_server.py"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, start_new_session=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"


def machine() -> dict[str, str]:
    cpu = re.search(r"^model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = f"{len(os.sched_getaffinity(0))} ({cpu[1] if cpu else platform.machine()})"
    return {"cores": cores, "kernel": platform.release(), "python": platform.python_version()}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engines", nargs="+", metavar="[label=]command")
    parser.add_argument("--runs", type=int, help=f"recorded runs per measurement [{Plan.runs}]")
    parser.add_argument("--quick", action="store_true", help="few runs, small counts")
    parser.add_argument("--only", default=",".join(MEASURES), help="[%(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to this file")
    options = parser.parse_args()
    try:
        options.engines = [named_engine(text) for text in options.engines]
    except ValueError as exc:
        parser.error(str(exc))
    if len({engine.label for engine in options.engines}) < len(options.engines):
        parser.error("two engines have the same name; use label=command")
    if unknown := set(options.only.split(",")) - MEASURES.keys():
        parser.error(f"unknown measurement {', '.join(sorted(unknown))} (choose from {', '.join(MEASURES)})")
    return options


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engines are killed at exit
    plan = QUICK if options.quick else Plan()
    measured: dict[str, dict[str, Outcome]] = {}
    with model() as base_url:
        plan = dataclasses.replace(plan, base_url=base_url, runs=options.runs or plan.runs)
        sizes = dataclasses.asdict(plan)
        for name in options.only.split(","):
            title, take = MEASURES[name]
            measured[name] = measure(options.engines, plan, take)
            sys.stdout.write(table(title.format(**sizes), measured[name]))
            sys.stdout.flush()
    machine_info = machine()
    sys.stdout.write("\n" + ", ".join(f"{name} {value}" for name, value in machine_info.items()) + "\n")
    if options.json:
        rows = {name: {label: vars(outcome) for label, outcome in row.items()} for name, row in measured.items()}
        options.json.write_text(json.dumps({"machine": machine_info, "plan": sizes, "measures": rows}, indent=1) + "\n")
    return int(any(outcome.failure and not outcome.refused for row in measured.values() for outcome in row.values()))


if __name__ == "__main__":
    sys.exit(main())
