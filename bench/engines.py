"""Measure engine executables side by side, against one model that answers immediately.

    python bench/engines.py original=/path/to/claude parley=.venv/bin/parley --runs 20 --json figures.json
    python bench/engines.py "offline=parley --model offline" "synced=PARLEY_FSYNC=always parley"
    python bench/engines.py ./parley --quick                  # a smoke test; the figures are rough
    python bench/engines.py ./parley --only warm,stream

An engine is a command, quoted if it has arguments, with an optional label and environment variables after the label:
`label=NAME=value command`. Each run gets new home, working and temporary directories and the same few environment
variables. The engines take turns within a measurement, in alternating order and after one unrecorded round, so that
noise affects all of them.

A time starts before the spawn or write and ends when our read returns the line. "quartiles" encloses the middle half of
the samples; "ratio" compares a median with that of the engine labelled `original`, or of the first one. Memory is
summed over all processes of an engine: "peak RSS" adds VmHWM, which counts a shared page twice; PSS divides shared
pages. The model runs in its own process. Linux only.

A failing engine gets a row with the reason and the end of its stderr, the others continue, and the exit code is 1.
An error result is a failure.

See also: `model_server.py` is the model, `engine_process.py` runs an engine, `scripts/plots.py` draws the recorded
samples.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import math
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from engine_process import (
    INITIALIZED,
    Engine,
    EngineError,
    EngineProcess,
    cpu_seconds,
    initialize_line,
    memory_mb,
    process_tree,
    start_engine,
    user_line,
    wait,
)
from model_server import prompt, read_prompt

ONE_SHOT = ("--print", "--output-format", "stream-json", "--verbose")
STREAM = (*ONE_SHOT, "--input-format", "stream-json")
TURNS_BEFORE_WARM = 3
SENTENCE = "A sentence of the usual length, as people and models exchange them all day."
SESSION = str(UUID(int=7))
CWD = "/current/working/directory"
FIRST_LINES = {"initialize response": INITIALIZED, "system/init": "system/init", "result": "result"}

Samples = dict[str, list[float]]
"""The samples of a run: "quantity, unit" to values."""


@dataclass(frozen=True)
class Plan:
    """The addresses of the model, and the number and size of everything."""

    base_url: str = ""
    https_url: str = ""
    ca_file: str = ""
    runs: int = 10
    warm_turns: int = 30
    deltas: int = 20_000
    line_bytes: int = 2 << 20
    processes: tuple[int, ...] = (1, 4, 16)
    lengths: tuple[int, ...] = (10, 1_000, 10_000, 100_000)
    long_turns: int = 10


QUICK = Plan(runs=2, warm_turns=5, deltas=1_000, line_bytes=1 << 20, processes=(1, 3), lengths=(10, 1_000))


@dataclass
class Outcome:
    """The samples of one engine in one measurement."""

    samples: Samples = field(default_factory=dict)
    failure: str = ""
    stderr: str = ""


def ms(start: float, end: float) -> float:
    return (end - start) * 1000


def named_engine(text: str) -> Engine:
    """Parse `label=NAME=value command`. Raises ValueError if the command does not exist."""
    labelled = re.match(r"([\w.-]+)=(.+)", text)
    label, command = labelled.groups() if labelled else ("", text)
    words = shlex.split(command)
    env = {}
    while words and (variable := re.fullmatch(r"(\w+)=(.*)", words[0], re.DOTALL)):
        env[variable[1]] = variable[2]
        words = words[1:]
    first, *rest = words or [""]
    found = shutil.which(first)
    if found is None:
        raise ValueError(f"no executable {first!r} in {text!r}")
    return Engine(label or " ".join([Path(first).name, *rest]), (os.path.abspath(found), *rest), env)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The first quartile, the median and the third quartile."""
    first, median, third = statistics.quantiles(values, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return first, median, third


def readable(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:,.{max(0, 2 - int(math.log10(abs(value) or 1)))}f}"


def figures(values: Sequence[float], reference: Sequence[float] | None) -> str:
    first, median, third = quartiles(values)
    ratio = f"{median / statistics.median(reference):.3f}" if reference else "-"
    return f"{readable(median):>11}{readable(first):>12}{readable(third):>11}{ratio:>9}{len(values):>9}"


def table(title: str, outcomes: Mapping[str, Outcome]) -> str:
    """One measurement as text: a row per quantity and engine, then the failures."""
    width = max(map(len, outcomes))
    lines = ["", title, f"  {'':43}{'':{width}}{'median':>11}{'quartiles':>20}{'ratio':>12}{'samples':>9}"]
    reference = (outcomes.get("original") or next(iter(outcomes.values()))).samples
    for quantity in dict.fromkeys(name for outcome in outcomes.values() for name in outcome.samples):
        heading = quantity
        for label, outcome in outcomes.items():
            if values := outcome.samples.get(quantity):
                lines.append(f"  {heading:43}{label:{width}}{figures(values, reference.get(quantity))}")
                heading = ""
    for label, outcome in outcomes.items():
        if outcome.failure:
            lines.append(f"  {label}: failed: {outcome.failure}")
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
        return {**samples, "stdin closed to exit, ms": [ended_ms], "peak RSS of all processes, MB": [peak_mb]}


def first_turn_https(engine: Engine, plan: Plan) -> Samples:
    trusting = dataclasses.replace(engine, env={"NODE_EXTRA_CA_CERTS": plan.ca_file, **engine.env})
    return first_turn(trusting, dataclasses.replace(plan, base_url=plan.https_url))


def time_turns(live: EngineProcess, texts: Sequence[str]) -> Samples:
    """Run a turn for each text. The first few are not recorded."""
    taken = []
    live.send(initialize_line())
    for number, text in enumerate(texts, 1):
        if number == TURNS_BEFORE_WARM + 1:
            before = cpu_seconds(process_tree([live]))
        sent_at = live.send(user_line(text))
        taken.append(ms(sent_at, result_time(live, number)))
    recorded = taken[TURNS_BEFORE_WARM:]
    return {"user line to result, ms": recorded, "CPU time of a turn, ms": [used_ms(before) / len(recorded)]}


def warm_turns(engine: Engine, plan: Plan) -> Samples:
    with start_engine(engine, STREAM, plan.base_url) as live:
        return time_turns(live, [prompt(1)] * (TURNS_BEFORE_WARM + plan.warm_turns))


def read_trips(engine: Engine, plan: Plan) -> Samples:
    """Each turn reads another file: the model calls Read, gets the lines, and answers with a text."""
    names = [f"{number}.txt" for number in range(TURNS_BEFORE_WARM + plan.warm_turns)]

    def write_files(folder: Path) -> dict[str, str]:
        for name in names:
            (folder / "cwd" / name).write_text(f"{SENTENCE}\n" * 200)
        return {}

    flags = (*STREAM, "--allowedTools", "Read")
    with start_engine(engine, flags, plan.base_url, prepare=write_files) as live:
        samples = time_turns(live, [read_prompt(str(live.folder / "cwd" / name)) for name in names])
        newest = json.dumps(live.newest.get("user"))
        if SENTENCE not in newest or live.count("user") != len(names):
            raise live.error(f"{live.count('user')} of {len(names)} files were read: {newest[:200]}")
        return samples


def used_ms(before: Mapping[int, float]) -> float:
    """The CPU time that these processes have used since."""
    return sum(seconds - before[pid] for pid, seconds in cpu_seconds(before).items()) * 1000


def stream(engine: Engine, plan: Plan) -> Samples:
    with start_engine(engine, (*STREAM, "--include-partial-messages"), plan.base_url) as live:
        live.send(initialize_line() + user_line(prompt(1)))
        result_time(live)
        before = cpu_seconds(process_tree([live]))
        sent_at = live.send(user_line(prompt(plan.deltas)))
        output, result_at = live.read_raw(b'"type":"result"')
        used_seconds = used_ms(before) / 1000
        events = output.count(b'"type":"stream_event"')
        if events < plan.deltas:
            raise live.error(f"{events} stream events for {plan.deltas} deltas")
        return {
            "stream events by the clock, /s": [events / (result_at - sent_at)],
            "stream events by CPU time, /s": [events / used_seconds],
        }


@functools.cache
def conversation(messages: int) -> bytes:
    """A transcript of this many prompts and answers, as lines of a session file. `CWD` stands for the directory."""
    common = {"isSidechain": False, "userType": "external", "cwd": CWD, "sessionId": SESSION, "version": "2.1.0"}
    common |= {"gitBranch": "", "timestamp": "2026-01-02T03:04:05.678Z"}
    usage = {"input_tokens": 10, "output_tokens": 20}
    lines = []
    for number in range(messages):
        text = f"{number}: {SENTENCE}"
        link = {"parentUuid": str(UUID(int=number)) if number else None, "uuid": str(UUID(int=number + 1))}
        if number % 2 == 0:
            inner: dict[str, object] = {"role": "user", "content": text}
        else:
            inner = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-opus-4-1"}
            inner |= {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}
        lines.append(json.dumps({**link, "type": inner["role"], "message": inner, **common}) + "\n")
    return "".join(lines).encode()


def write_session(messages: int, folder: Path) -> dict[str, str]:
    """Write the conversation to where engines look for it."""
    cwd = str(folder / "cwd")
    project = folder / "home" / ".claude" / "projects" / re.sub(r"[^A-Za-z0-9]", "-", cwd)
    project.mkdir(parents=True)
    (project / f"{SESSION}.jsonl").write_bytes(conversation(messages).replace(CWD.encode(), cwd.encode()))
    return {"DISABLE_AUTO_COMPACT": "1"}


def long_conversations(engine: Engine, plan: Plan) -> Samples:
    """Resume a session of each length: the first result, then more turns, of which the first few are not recorded.

    All of the session must be in the requests.
    """
    samples = {}
    for length in plan.lengths:
        taken = []
        prepare = functools.partial(write_session, length)
        with start_engine(engine, (*STREAM, "--resume", SESSION), plan.base_url, prepare=prepare) as live:
            live.send(initialize_line() + user_line(prompt(1)))
            resumed_ms = ms(live.started_at, result_time(live))
            for number in range(TURNS_BEFORE_WARM + plan.long_turns):
                sent_at = live.send(user_line(prompt(1)))
                taken.append(ms(sent_at, result_time(live, number + 2)))
            with urllib.request.urlopen(f"{plan.base_url}/bench/bytes") as answer:
                request_bytes = json.load(answer)["bytes"]
            if request_bytes < length * len(SENTENCE):
                raise live.error(f"a request of {request_bytes:,} bytes for a conversation of {length:,} messages")
        samples[f"{length:,} messages: spawn to result, ms"] = [resumed_ms]
        samples[f"{length:,} messages: user line to result, ms"] = taken[TURNS_BEFORE_WARM:]
    return samples


def long_line(engine: Engine, plan: Plan) -> Samples:
    line = user_line(f"{prompt(1)}\n" + f"{SENTENCE}\n" * (plan.line_bytes // (len(SENTENCE) + 2)))
    with start_engine(engine, STREAM, plan.base_url) as live:
        live.send(initialize_line())
        wait([live], lambda live: live.count(INITIALIZED) > 0, "initialize response")
        sent_at = live.send(line)
        return {"user line to result, ms": [ms(sent_at, result_time(live))]}


def many_processes(engine: Engine, plan: Plan) -> Samples:
    samples = {}
    for count in plan.processes:
        with contextlib.ExitStack() as stack:
            processes = []
            for _ in range(count):
                processes.append(stack.enter_context(start_engine(engine, STREAM, plan.base_url)))
                processes[-1].send(initialize_line() + user_line(prompt(1)))
            wait(processes, lambda live: live.count("result") > 0, "result")
            last_at = max(map(result_time, processes))
            samples[f"{count}: first spawn to last result, ms"] = [ms(processes[0].started_at, last_at)]
            samples[f"{count}: PSS of all, MB"] = [memory_mb(processes, "smaps_rollup", "Pss")]
    return samples


def one_shot(engine: Engine, plan: Plan) -> Samples:
    with start_engine(engine, (*ONE_SHOT, "short"), plan.base_url, subprocess.DEVNULL) as live:
        wait([live], lambda live: live.is_closed and live.exited_at > 0, "exit")
        result_time(live)
        return {"spawn to exit, ms": [ms(live.started_at, live.exited_at)]}


Take = Callable[[Engine, Plan], Samples]
MEASURES: dict[str, tuple[str, Take, int]] = {
    "first": ("First turn of a new process, over http", first_turn, 1),
    "https": ("First turn of a new process, over https", first_turn_https, 1),
    "one-shot": ("One-shot: prompt as an argument", one_shot, 1),
    "warm": (f"Warm turn: after {TURNS_BEFORE_WARM} turns, {{warm_turns}} more in one process", warm_turns, 1),
    "read": ("Read trip: the same with a call of Read, so two model calls per turn", read_trips, 1),
    "stream": ("Streaming: one reply of {deltas:,} deltas, --include-partial-messages", stream, 1),
    "long": ("Long conversations: resume, then {long_turns} more turns", long_conversations, 4),
    "line": ("One user line of {line_bytes:,} bytes", long_line, 2),
    "processes": ("Processes at once, one turn each", many_processes, 2),
}
"""By name: the title, how a sample is taken, and by how much the number of runs is divided, because a run is long."""


def measure(engines: Sequence[Engine], plan: Plan, take: Take, runs: int) -> dict[str, Outcome]:
    """Run all engines that have not failed, round by round. The first round is not recorded."""
    outcomes = {engine.label: Outcome() for engine in engines}
    for number in range(runs + 1):
        for engine in engines if number % 2 else engines[::-1]:
            outcome = outcomes[engine.label]
            if outcome.failure:
                continue
            try:
                taken = take(engine, plan)
            except EngineError as exc:
                outcome.failure, outcome.stderr = str(exc), exc.stderr
                continue
            for quantity, values in taken.items() if number else ():
                outcome.samples.setdefault(quantity, []).extend(values)
    return outcomes


@contextlib.contextmanager
def model(certificate: Path | None = None) -> Iterator[str]:
    """The URL of the model server while it runs, over TLS with a certificate. It ends when its stdin is closed."""
    argv = [sys.executable, str(Path(__file__).with_name("model_server.py"))]
    argv += [str(certificate)] if certificate else []
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, start_new_session=True) as server:
        assert server.stdout is not None
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{int(server.stdout.readline())}"


def make_certificate(folder: str) -> Path:
    """A key and a self-signed certificate for loopback, in one file."""
    path = Path(folder, "server.pem")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *subject]
    subprocess.run([*make, "-keyout", path, "-out", f"{path}.part"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.part").read_text())
    return path


def machine() -> dict[str, str]:
    cpu = re.search(r"^model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = f"{len(os.sched_getaffinity(0))} ({cpu[1] if cpu else platform.machine()})"
    load = f"{os.getloadavg()[2]:.1f} (average of 15 minutes)"
    return {"cores": cores, "kernel": platform.release(), "python": platform.python_version(), "load": load}


def version(engine: Engine) -> str:
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, **engine.env}
        done = subprocess.run([*engine.argv, "--version"], env=env, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()


def write_json(
    path: Path, engines: Sequence[Engine], plan: Plan, measured: Mapping[str, Mapping[str, Outcome]]
) -> None:
    """All samples, with one line per measurement, engine and quantity."""
    sizes = {name: value for name, value in vars(plan).items() if name not in ("base_url", "https_url", "ca_file")}
    rows = [
        {"measure": name, "engine": label, "quantity": quantity, "values": [float(f"{value:.4g}") for value in values]}
        for name, outcomes in measured.items()
        for label, outcome in outcomes.items()
        for quantity, values in outcome.samples.items()
    ]
    versions = {engine.label: version(engine) for engine in engines}
    head = json.dumps({"machine": machine(), "engines": versions, "plan": sizes, "rows": []}, indent=1)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.write_text(head.replace('"rows": []', f'"rows": [\n{lines}\n ]') + "\n")


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
    with contextlib.ExitStack() as stack:
        certificate = make_certificate(stack.enter_context(tempfile.TemporaryDirectory()))
        plan = dataclasses.replace(
            plan,
            base_url=stack.enter_context(model()),
            https_url=stack.enter_context(model(certificate)),
            ca_file=str(certificate),
            runs=options.runs or plan.runs,
        )
        # One run of each engine that is not killed: an engine may write compiled code when it exits.
        measure(options.engines, plan, one_shot, 0)
        for name in options.only.split(","):
            title, take, divisor = MEASURES[name]
            measured[name] = measure(options.engines, plan, take, max(1, plan.runs // divisor))
            sys.stdout.write(table(title.format(**dataclasses.asdict(plan)), measured[name]))
            sys.stdout.flush()
    sys.stdout.write("\n" + ", ".join(f"{name} {value}" for name, value in machine().items()) + "\n")
    if options.json:
        write_json(options.json, options.engines, plan, measured)
    return int(any(outcome.failure for row in measured.values() for outcome in row.values()))


if __name__ == "__main__":
    sys.exit(main())
