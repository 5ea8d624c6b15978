"""An evaluation of many cases over several configurations, in one process, killed in the middle and resumed.

    python -m tests.stress.evals.many_cases --cases 50 --configurations 4

Each case has a script for each configuration: it writes a file and answers, and a command checks the file. The first
process is killed with SIGKILL after a part of the runs; `--resume` does the rest. What must hold:

    every run has exactly one line in the results, and none that was recorded before the kill runs again
    no workspace, no process and no half line is left
    memory does not grow with the number of runs: printed as the RSS after each quarter of them
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
POLL_SECONDS = 0.05
HANG_SECONDS = 300


@dataclass
class Seen:
    """What an evaluation came to."""

    before_kill: int = 0
    seconds: float = 0
    cpu_seconds: float = 0
    """Of the process and the commands of its cases, which says more than the clock on a busy machine."""
    rss_mb: list[float] = field(default_factory=list)
    """After each part of the runs of an evaluation that is not killed."""
    problems: list[str] = field(default_factory=list)


def write_suite(folder: Path, cases: int, configurations: int) -> Path:
    """A suite whose last configuration fails every fifth case."""
    lines = ["concurrency = 8", "", "[defaults]", 'allowed_tools = ["Write"]']
    for configuration in range(configurations):
        name = f"configuration-{configuration}"
        lines += ["", "[[configuration]]", f'name = "{name}"', f'model = "scripted:{name}/{{case}}.toml"']
        (folder / name).mkdir()
        for case in range(cases):
            text = "wrong" if configuration == configurations - 1 and case % 5 == 0 else f"case {case}"
            turn = (
                f'[[turn]]\ntools = [{{ name = "Write", input = {{ file_path = "out.txt", content = "{text}" }} }}]\n'
            )
            (folder / name / f"case-{case}.toml").write_text(f'{turn}\n[[turn]]\ntext = "Done."\n')
    for case in range(cases):
        lines += ["", "[[case]]", f'name = "case-{case}"', f'prompt = "Write case {case} to out.txt."']
        lines += [f'expect.files = {{ "out.txt" = "case {case}" }}', 'expect.commands = ["test -s out.txt"]']
    path = folder / "many.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def read_runs(results: Path) -> list[Json]:
    """The whole lines so far, without the header."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_bytes().split(b"\n")[1:-1]]


def start(suite: Path, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    argv = [PARLEY, "eval", str(suite), "--results", str(folder / "results"), "--json", *words]
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "HOME": str(folder)}
    return subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.PIPE, start_new_session=True)


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def kill_and_resume(folder: Path, suite: Path, total: int, kill_after: int, seen: Seen) -> None:
    (folder / "tmp").mkdir()
    results = folder / "results" / "results.jsonl"
    first = start(suite, folder)
    deadline = time.monotonic() + HANG_SECONDS
    while len(read_runs(results)) < kill_after and first.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    first.kill()
    first.communicate()
    before = read_runs(results)
    seen.before_kill = len(before)
    if not kill_after <= len(before) < total:
        seen.problems.append(f"killed after {len(before)} of {total} runs")
    second = start(suite, folder, "--resume")
    report = json.loads(second.communicate(timeout=HANG_SECONDS)[0])
    after = read_runs(results)
    keys = [(run["case"], run["configuration"], run["run"]) for run in after]
    if len(keys) != total or len(set(keys)) != total:
        seen.problems.append(f"{len(keys)} lines of {len(set(keys))} runs; expected {total} of each")
    if after[: len(before)] != before:
        seen.problems.append("the runs before the kill are not those at the start of the file")
    check_report(report, after, seen)
    if left := list((folder / "tmp").iterdir()):
        seen.problems.append(f"left in the temporary folder: {left}")


def watch_memory(process: subprocess.Popen[bytes], results: Path, total: int) -> list[float]:
    """The memory of the process after each quarter of all runs that it sees, and at the end."""
    sizes: list[float] = []
    marks = [total * part // 4 for part in (1, 2, 3, 4)]
    while process.poll() is None and marks:
        done = len(read_runs(results))
        while marks and done >= marks[0]:
            marks.pop(0)
            sizes.append(rss_mb(process.pid))
        time.sleep(POLL_SECONDS)
    return sizes


def check_report(report: Json, runs: list[Json], seen: Seen) -> None:
    """All but the last configuration pass everything; the last one fails every fifth case."""
    for row in report["configurations"]:
        wrong = sum(
            run["outcome"] != "passed" and run["configuration"] == row["name"] and int(run["case"][5:]) % 5 != 0
            for run in runs
        )
        if wrong or row["errors"]:
            seen.problems.append(f"{row['name']}: {wrong} runs failed that should pass, {row['errors']} errors")
    *good, last = report["configurations"]
    if any(row["rate"] != 1 for row in good) or last["rate"] == 1:
        seen.problems.append(f"unexpected rates: {[row['rate'] for row in report['configurations']]}")


def run_whole(folder: Path, suite: Path, total: int, seen: Seen) -> None:
    """Without a kill: how long it takes, and its memory after each quarter."""
    (folder / "tmp").mkdir()
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = start(suite, folder)
    seen.rss_mb = watch_memory(process, folder / "results" / "results.jsonl", total)
    process.communicate(timeout=HANG_SECONDS)
    seen.seconds = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seen.cpu_seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


def storm(folder: Path, cases: int, configurations: int) -> Seen:
    seen = Seen()
    suite = write_suite(folder, cases, configurations)
    total = cases * configurations
    (folder / "killed").mkdir()
    kill_and_resume(folder / "killed", suite, total, total // 3, seen)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--configurations", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, total = Path(place), given.cases * given.configurations
        seen = storm(folder, given.cases, given.configurations)
        (folder / "whole").mkdir()
        run_whole(folder / "whole", folder / "many.toml", total, seen)
    sizes = ", ".join(f"{size:.1f}" for size in seen.rss_mb)
    report = (
        f"{total} runs in one process: {seen.seconds:.1f} s, {seen.cpu_seconds:.1f} s of CPU time",
        f"RSS in MB after each quarter: {sizes}",
        f"killed after {seen.before_kill} runs and resumed; problems: {seen.problems or 'none'}",
    )
    sys.stdout.write("\n".join(report) + "\n")
    sys.exit(bool(seen.problems))


if __name__ == "__main__":
    main()
