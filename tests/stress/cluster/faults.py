"""What the programs of this folder share: load on a cluster, faults one after the other, and the check at the end.

Each fault is followed by probes of the sessions that it hit: how long until each of them answers again. After the last
fault the talkers finish their prompts; then every session is read back, from the gateway and from the log.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.helpers.cluster_processes import RunningCluster
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.cluster.history import DOUBLED, LOST, RAN_TWICE
from tests.stress.cluster.load import Talker, read_all_lines, start_next, start_talkers
from tests.stress.cluster.log_audit import audit_log

PROBE_SECONDS = 0.02


@dataclass
class Report:
    """What a run found: figures for the summary, and problems. Without problems it has passed."""

    title: str
    problems: list[str] = field(default_factory=list)
    recovery_seconds: list[float] = field(default_factory=list)
    """From a fault until a session that it hit answers."""
    expiry_seconds: list[float] = field(default_factory=list)
    """From a fault until the lease of the shard of such a session has ended."""
    takeover_seconds: list[float] = field(default_factory=list)
    """From a fault until another host has the shard."""
    limit_seconds: float = 0.0
    figures: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, amount: int = 1) -> None:
        self.figures[name] = self.figures.get(name, 0) + amount

    def lines(self) -> list[str]:
        shown = [f"{self.title}: " + ", ".join(f"{value} {name}" for name, value in self.figures.items())]
        if self.takeover_seconds:
            shown.append(f"their leases have ended after {describe(self.expiry_seconds)}")
            shown.append(f"their shards have another host after {describe(self.takeover_seconds)}")
        if times := self.recovery_seconds:
            late = sum(one > self.limit_seconds for one in times)
            shown.append(f"sessions answer again after {describe(times)}")
            shown.append(f"{late} of {len(times)} later than {self.limit_seconds:g} s")
        kinds = (LOST, DOUBLED, RAN_TWICE)
        counts = [f"{sum(one.endswith(kind) for one in self.problems)} {kind.strip('[]')}" for kind in kinds]
        return [*shown, *self.problems[:50], f"{', '.join(counts)}; {len(self.problems)} problems"]


def describe(times: list[float]) -> str:
    """The distribution of seconds in words."""
    ordered = sorted(times)
    p50, p95, p99 = (ordered[len(ordered) * share // 100] for share in (50, 95, 99))
    return f"p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s, last {ordered[-1]:.2f} s"


Fault = Callable[["Run"], Awaitable[None]]


class Run:
    """A cluster under load."""

    def __init__(
        self, cluster: RunningCluster, talkers: list[Talker], dice: Random, report: Report, at_once: int = 1
    ) -> None:
        self.at_once = at_once
        """How many hosts a fault hits."""
        self.cluster = cluster
        self.talkers = talkers
        self.dice = dice
        self.report = report
        self.retired: list[Talker] = []
        """Those whose sessions are long enough."""
        self._is_stopping = False
        self._talking = [asyncio.create_task(self._talk(talker)) for talker in talkers]

    async def _talk(self, talker: Talker) -> None:
        await talker.run()
        while not self._is_stopping:
            self.retired.append(talker)
            at = self.talkers.index(talker)
            talker = self.talkers[at] = await start_next(talker)
            talker.is_stopped = self._is_stopping
            await talker.run()

    def check_talkers(self) -> None:
        """Raises what a talker failed with."""
        for task in self._talking:
            if task.done():
                task.result()

    async def owned_sessions(self, host: str) -> list[Talker]:
        """The sessions that a host runs now."""
        owned = await self.cluster.shards_of(host)
        return [talker for talker in self.talkers if self.cluster.shard(talker.session_id) in owned]

    async def probe(self, talkers: list[Talker], *, writes: bool = False) -> None:
        """Measure how long it takes until each session answers; with `writes`, until it can write to its log."""
        began = time.monotonic()
        rename = {"subtype": "rename_session", "title": "still here"}

        async def ask(talker: Talker) -> None:
            gateway = self.dice.choice(self.cluster.gateways)
            path = f"/sessions/{talker.session_id}"
            while True:
                try:
                    if writes:
                        status, _ = await gateway.request("POST", f"{path}/control", rename)
                    else:
                        status, _ = await gateway.request("GET", path)
                except (OSError, ValueError):
                    status = 0
                if status == 200:
                    break
                await asyncio.sleep(PROBE_SECONDS)
            self.report.recovery_seconds.append(time.monotonic() - began)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*map(ask, talkers))

    async def watch_takeover(self, talkers: list[Talker], hosts: set[str]) -> None:
        """Measure how long it takes until each session has no host, and until it has another one."""
        began = time.monotonic()
        held = free = [self.cluster.shard(talker.session_id) for talker in talkers]
        while free:
            leases = await self.cluster.leases()
            owners = {shard: leases[shard].host if shard in leases else "" for shard in free}
            seconds = time.monotonic() - began
            still_held = [shard for shard in held if owners[shard] in hosts]
            self.report.expiry_seconds += [seconds] * (len(held) - len(still_held))
            still_free = [shard for shard in free if not owners[shard] or owners[shard] in hosts]
            self.report.takeover_seconds += [seconds] * (len(free) - len(still_free))
            held, free = still_held, still_free
            await asyncio.sleep(PROBE_SECONDS)

    async def check_questions(self, asked: list[tuple[Talker, str]]) -> None:
        """Questions that were open before a fault and have no answer yet must be open after it, under the same ids."""
        for talker, request_id in asked:
            status, question = await talker.request("GET", f"/questions/{talker.session_id}/{request_id}")
            self.report.count("open questions checked")
            if status != 200 or question["state"] not in ("open", "answered", "decided"):
                self.report.problems.append(f"{talker.session_id}: the question {request_id} is {status} {question}")

    async def stop_talking(self) -> None:
        """Let the talkers finish their prompts."""
        self._is_stopping = True
        for talker in self.talkers:
            talker.is_stopped = True
            talker.holds_questions = False
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*self._talking)

    async def finish(self) -> None:
        await self.stop_talking()
        self.report.problems += self.cluster.crashes()
        for talker in [*self.retired, *self.talkers]:
            final = await read_all_lines(self.cluster, talker.session_id)
            self.report.problems += talker.problems(final)
            self.report.problems += await audit_log(self.cluster, talker.session_id)
            self.report.count("sessions")
            self.report.count("prompts", len(talker.prompts))
            self.report.count("commands", sum("tool" in prompt.kind for prompt in talker.prompts))
            self.report.count("questions", sum(bool(prompt.question) for prompt in talker.prompts))
            self.report.count("lines", len(final))

    async def cancel(self) -> None:
        for task in self._talking:
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)


async def run_with_faults(cluster: RunningCluster, fault: Fault, plan: argparse.Namespace, report: Report) -> Report:
    """Load the cluster, let the fault happen `plan.count` times, and check what is left."""
    dice = Random(plan.seed)
    report.limit_seconds = cluster.lease_seconds + 1
    folder = cluster.folder / "witness"
    folder.mkdir()
    talkers = await start_talkers(list(cluster.gateways), plan.sessions, folder, dice, plan.think_seconds)
    run = Run(cluster, talkers, dice, report, plan.at_once)
    deadline = time.monotonic() + plan.seconds if plan.seconds else None
    try:
        for number in range(-(-plan.count // plan.at_once)):
            if deadline is not None and time.monotonic() > deadline:
                break
            await asyncio.sleep(dice.random() * plan.pause_seconds)
            run.check_talkers()
            await fault(run)
            report.count("faults")
            if (number + 1) % 10 == 0:
                print_line("; ".join(report.lines()))
        await run.finish()
    finally:
        await run.cancel()
    return report


def parse_plan(description: str, count: int, nats_servers: int = 1) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count, help="how many faults")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time, whatever the count")
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--think-seconds", type=float, default=2, help="at most this long between two prompts")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=1, help="how many hosts are killed at the same time")
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--nats-servers", type=int, default=nats_servers, choices=[1, 3])
    parser.add_argument("--lease-seconds", type=float, default=3)
    parser.add_argument("--pause-seconds", type=float, default=1, help="at most this long between two faults")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def short_plan(**changed: object) -> argparse.Namespace:
    """The form that CI runs."""
    plan = argparse.Namespace(count=1, seconds=0, sessions=4, hosts=2, gateways=1, nats_servers=1)
    plan.think_seconds, plan.at_once = 0.0, 1
    vars(plan).update({"lease_seconds": 2, "pause_seconds": 0.5, "seed": 1, **changed})
    return plan


async def start_and_run(folder: Path, title: str, fault: Fault, plan: argparse.Namespace) -> Report:
    async with RunningCluster(
        folder,
        hosts=plan.hosts,
        gateways=plan.gateways,
        nats_servers=plan.nats_servers,
        lease_seconds=plan.lease_seconds,
    ) as cluster:
        return await run_with_faults(cluster, fault, plan, Report(title))


def run_program(title: str, fault: Fault, plan: argparse.Namespace) -> int:
    """Run it and print the summary; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(start_and_run(Path(folder), title, fault, plan))
    for line in report.lines():
        print_line(line)
    return 1 if report.problems else 0


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
