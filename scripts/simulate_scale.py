"""Simulate a cluster of many sessions with discrete events, from the costs that `bench/scale.py --json` measured.

    python scripts/simulate_scale.py                    # print tables, from docs/scale/measured.json
    python scripts/simulate_scale.py --write            # write docs/scale/simulated.json and capacity.svg
    python scripts/simulate_scale.py --sessions 200000 --hosts 12 --json

A host, a gateway, the leader of the log and the leader of the leases are queues: they do one thing at a time, for as
long as the benchmark measured. Turns begin at random; each visits its gateway, its host, the log and the host again. In
the middle of the run a rack of hosts dies. What is not a queue is drawn from what the benchmark measured: the time to
the first frame when nothing else runs, and the time from the end of a lease to the next one. The first check is the
benchmark itself: simulated with its own sizes, the figures must come out again.

See also: `gen_scale.py`, which puts the results into `docs/scale.md`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pages import ROOT, table

MEASURED = ROOT / "docs" / "scale" / "measured.json"
SIMULATED = MEASURED.with_name("simulated.json")
CAPACITY = (
    *("sessions", "in a turn", "hosts", "gateways", "log streams", "one stream", "leases", "memory of a host"),
    *("log", "first frame p50 / p99", "rack dies: p50 / last"),
)
Rows = list[tuple[str, ...]]
ONE, MANY = "a commit, p50 ms", "commits per second, 64 in flight"
LEASE_SECONDS = 10.0
TARGET = 0.5
"""How busy a host and a gateway are planned to be: the other half is for bursts and for the sessions of a dead host."""
SHARDS_PER_HOST = 8
"""At least. Few make the load of the hosts uneven, many make the traffic of the leases heavy."""
SIZES = (10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


@dataclass(frozen=True)
class Costs:
    """What the benchmark measured, on one core each."""

    host_turn_cpu_ms: float
    host_frame_cpu_us: float
    gateway_command_cpu_ms: float
    gateway_frame_cpu_us: float
    commits_per_turn: float
    commit_ms: float
    """From the publish of a batch until it is durable, without a queue."""
    commits_per_second: float
    """What one stream takes with `sync_interval: always`."""
    lease_ms: float
    """A renewal of a lease, at the server."""
    load_session_ms: float
    """CPU of a host that loads a session of a dead host and continues its turn."""
    evicted_session_kb: float
    loaded_session_kb: float
    stored_session_kb: float
    """In the log, after some turns."""
    host_rest_use: float
    """The share of a core that a host needs for its leases."""
    lease_seconds: float
    first_frame_ms: list[float]
    """From a prompt to its first frame without any queue: quantiles of what was measured."""
    claim_seconds: list[float]
    """How long after the end of a lease another host has the shard: the same."""
    reach_seconds: list[float]
    """How long after that the first of its sessions answers a gateway: the same."""


@dataclass(frozen=True)
class Load:
    """What the users do."""

    sessions: int
    active_share: float = 0.01
    """The part of the sessions that is in a turn at a time."""
    loaded_share: float = 0.1
    """The part that is in the memory of a host."""
    turn_seconds: float = 30
    frames_per_second: float = 20
    """Of a turn, while the model writes: tokens that come within 50 ms are one frame."""

    @property
    def turns_per_second(self) -> float:
        return self.sessions * self.active_share / self.turn_seconds


@dataclass(frozen=True)
class Plan:
    """How many of everything. A host and a gateway use one core; a stream has a leader."""

    hosts: int
    gateways: int
    streams: int = 1
    shards: int = 4096
    racks: int = 8

    @property
    def dead_hosts(self) -> int:
        return max(1, self.hosts // self.racks)


@dataclass
class Station:
    """A queue with one server, first come first served."""

    free_at: float = 0.0
    busy_seconds: float = 0.0

    def visit(self, now: float, seconds: float) -> float:
        """When a job that arrives now is done."""
        self.free_at = max(now, self.free_at) + seconds
        self.busy_seconds += seconds
        return self.free_at


@dataclass
class Outcome:
    """What a run showed."""

    load: Load
    plan: Plan
    first_frame_ms: list[float] = field(default_factory=list)
    failover_seconds: list[float] = field(default_factory=list)
    host_use: float = 0.0
    gateway_use: float = 0.0
    log_use: float = 0.0
    lease_use: float = 0.0
    memory_gb_per_host: float = 0.0
    log_tb: float = 0.0


class Simulation:
    """A cluster for some seconds. `rack_dies_at`: when a rack of hosts dies; None for never."""

    def __init__(self, costs: Costs, load: Load, plan: Plan, seed: int = 1) -> None:
        self.costs, self.load, self.plan = costs, load, plan
        self.outcome = Outcome(load, plan)
        self._dice = Random(seed)
        self._events: list[tuple[float, int, Callable[[float], object]]] = []
        self._count = 0
        self._hosts = [Station() for _ in range(plan.hosts)]
        self._gateways = [Station() for _ in range(plan.gateways)]
        self._streams = [Station() for _ in range(plan.streams)]
        self._leases = Station()
        self._owner = [shard % plan.hosts for shard in range(plan.shards)]
        self._dead: set[int] = set()
        share = costs.host_turn_cpu_ms / (round(costs.commits_per_turn) + 1)
        commit_ms = max(costs.commit_ms, 1000 / costs.commits_per_second)
        self._service_ms = costs.gateway_command_cpu_ms + 2 * share + commit_ms + costs.gateway_frame_cpu_us / 1000
        """What the stations on the way to a first frame need without a queue."""
        self._running: dict[int, int] = {}
        """The turns that run, with their shards."""

    def run(self, seconds: float, rack_dies_at: float | None = None) -> Outcome:
        self._end = seconds
        self._at(self._dice.expovariate(self.load.turns_per_second), self._begin_turn)
        for host in range(self.plan.hosts):
            self._at(self._dice.random() * self.costs.lease_seconds / 3, partial(self._renew, host))
        if rack_dies_at is not None:
            self._at(rack_dies_at, self._kill_rack)
        while self._events and self._events[0][0] <= seconds:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return self._summarize(seconds)

    def _at(self, when: float, act: Callable[[float], object]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    # A turn.

    def _begin_turn(self, now: float) -> None:
        """A user sends a prompt through one of the gateways."""
        self._at(now + self._dice.expovariate(self.load.turns_per_second), self._begin_turn)
        shard, turn = self._dice.randrange(self.plan.shards), self._count
        gateway = self._dice.choice(self._gateways)
        arrived = gateway.visit(now, self.costs.gateway_command_cpu_ms / 1000)
        self._at(arrived, lambda then: self._accept(then, now, turn, shard, gateway))

    def _accept(self, now: float, sent_at: float, turn: int, shard: int, gateway: Station) -> None:
        if self._owner[shard] in self._dead:  # the gateway tries again until the shard has an owner
            self._at(now + 0.1, lambda then: self._accept(then, sent_at, turn, shard, gateway))
            return
        self._running[turn] = shard
        done = self._work(now, shard)
        self._at(
            done, lambda then: self._commit(then, shard, lambda at: self._first_frame(at, sent_at, shard, gateway))
        )
        steps = max(1, round(self.costs.commits_per_turn) - 1)
        for step in range(1, steps + 1):
            self._at(now + self.load.turn_seconds * step / steps, lambda then: self._step(then, shard))
        for second in range(int(self.load.turn_seconds)):
            self._at(now + second + self._dice.random(), lambda then: self._stream(then, shard, gateway))
        self._at(now + self.load.turn_seconds, lambda then: self._running.pop(turn, None))

    def _work(self, now: float, shard: int) -> float:
        """The part of a turn between two commits."""
        share = self.costs.host_turn_cpu_ms / 1000 / (round(self.costs.commits_per_turn) + 1)
        return self._hosts[self._owner[shard]].visit(now, share)

    def _commit(self, now: float, shard: int, then: Callable[[float], object]) -> None:
        service = 1 / self.costs.commits_per_second
        done = self._streams[shard % self.plan.streams].visit(now, service)
        self._at(done + max(0.0, self.costs.commit_ms / 1000 - service), then)

    def _first_frame(self, now: float, sent_at: float, shard: int, gateway: Station) -> None:
        shown = gateway.visit(self._work(now, shard), self.costs.gateway_frame_cpu_us / 1e6)
        if not self._dead:  # `failover_seconds` is about the time after
            waited_ms = max(0.0, (shown - sent_at) * 1000 - self._service_ms)
            self.outcome.first_frame_ms.append(self._dice.choice(self.costs.first_frame_ms) + waited_ms)

    def _step(self, now: float, shard: int) -> None:
        if self._owner[shard] not in self._dead:
            self._commit(self._work(now, shard), shard, lambda _: None)

    def _stream(self, now: float, shard: int, gateway: Station) -> None:
        """The frames of one second."""
        if self._owner[shard] not in self._dead:
            frames = self.load.frames_per_second
            sent = self._hosts[self._owner[shard]].visit(now, frames * self.costs.host_frame_cpu_us / 1e6)
            gateway.visit(sent, frames * self.costs.gateway_frame_cpu_us / 1e6)

    # Leases.

    def _renew(self, host: int, now: float) -> None:
        if host in self._dead:
            return
        owned = self.plan.shards / (self.plan.hosts - len(self._dead))
        self._leases.visit(now, (owned + 1) * self.costs.lease_ms / 1000)
        self._hosts[host].visit(now, self.costs.host_rest_use * self.costs.lease_seconds / 3)
        self._at(now + self.costs.lease_seconds / 3, partial(self._renew, host))

    def _kill_rack(self, now: float) -> None:
        self._dead = set(range(self.plan.dead_hosts))
        lost = [shard for shard, owner in enumerate(self._owner) if owner in self._dead]
        # A host renews all its leases at the same time.
        renewed = {host: now - self._dice.random() * self.costs.lease_seconds / 3 for host in self._dead}
        for shard in lost:
            expires = renewed[self._owner[shard]] + self.costs.lease_seconds
            self._at(expires + self._dice.choice(self.costs.claim_seconds), partial(self._claim, now, shard))

    def _claim(self, died_at: float, shard: int, now: float) -> None:
        """A host that lives takes the shard, then loads the sessions that were in a turn, one after the other."""
        claimed = self._leases.visit(now, self.costs.lease_ms / 1000)
        owned = Counter(self._owner)
        self._owner[shard] = min(range(len(self._dead), self.plan.hosts), key=lambda host: owned[host])
        host = self._hosts[self._owner[shard]]
        reached = self._dice.choice(self.costs.reach_seconds)
        for _ in [turn for turn, where in self._running.items() if where == shard]:
            loaded = host.visit(claimed, self.costs.load_session_ms / 1000)
            stream = self._streams[shard % self.plan.streams]
            answered = max(claimed + reached, stream.visit(loaded, 2 / self.costs.commits_per_second))
            self.outcome.failover_seconds.append(answered - died_at)

    def _summarize(self, seconds: float) -> Outcome:
        def use(stations: list[Station]) -> float:
            return sum(one.busy_seconds for one in stations) / len(stations) / seconds

        found = self.outcome
        found.host_use, found.gateway_use = use(self._hosts), use(self._gateways)
        found.log_use, found.lease_use = use(self._streams), use([self._leases])
        load, costs = self.load, self.costs
        loaded = load.sessions * load.loaded_share
        kilobytes = loaded * costs.loaded_session_kb + (load.sessions - loaded) * costs.evicted_session_kb
        found.memory_gb_per_host = kilobytes / self.plan.hosts / 1e6
        found.log_tb = load.sessions * costs.stored_session_kb / 1e9
        return found


def plan_for(costs: Costs, load: Load) -> Plan:
    """As many hosts, gateways and streams as keep each of them at half of what it can do."""
    frames = load.sessions * load.active_share * load.frames_per_second
    host_cpu = load.turns_per_second * costs.host_turn_cpu_ms / 1000 + frames * costs.host_frame_cpu_us / 1e6
    gateway_cpu = (
        load.turns_per_second * costs.gateway_command_cpu_ms / 1000 + frames * costs.gateway_frame_cpu_us / 1e6
    )
    streams = load.turns_per_second * costs.commits_per_turn / costs.commits_per_second / TARGET
    hosts = max(2, math.ceil(host_cpu / TARGET))
    shards = max(64, 2 ** math.ceil(math.log2(hosts * SHARDS_PER_HOST)))
    return Plan(hosts, max(2, math.ceil(gateway_cpu / TARGET)), max(1, math.ceil(streams)), shards)


def find_limits(costs: Costs) -> list[tuple[float, str]]:
    """What more machines do not divide, and how many sessions fill it in one cluster; the first to break first."""
    load = Load(1_000_000)
    stream = costs.commits_per_second / (load.turns_per_second / load.sessions * costs.commits_per_turn)
    shards = costs.lease_seconds / 3 / (costs.lease_ms / 1000)
    sessions_per_host = load.sessions / plan_for(costs, load).hosts
    return sorted(
        [
            (stream, f"the leader of one log stream, {costs.commits_per_second:,.0f} commits a second"),
            (shards / SHARDS_PER_HOST * sessions_per_host, f"the leader of the leases, {shards:,.0f} shards"),
        ]
    )


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def check(measured: dict[str, Any], costs: Costs) -> list[tuple[str, str, str]]:
    """The benchmark, simulated with its own sizes: what was measured, and what comes out."""
    plan, found = measured["plan"], measured["measured"]
    load = Load(
        sessions=plan["sessions"],
        active_share=plan["active"] / plan["sessions"],
        turn_seconds=plan["turn_seconds"],
        frames_per_second=plan["frames_per_second"],
    )
    sizes = Plan(hosts=plan["hosts"], gateways=plan["gateways"], shards=plan["shards"], racks=plan["hosts"])
    outcome = Simulation(costs, load, sizes).run(seconds=60, rack_dies_at=30)
    rows = [
        (
            "prompt to first frame, 1 % stream, p50",
            "ms",
            found["first_frame_ms"]["p50"],
            percentile(outcome.first_frame_ms, 0.5),
        ),
        (
            "prompt to first frame, 1 % stream, p99",
            "ms",
            found["first_frame_ms"]["p99"],
            percentile(outcome.first_frame_ms, 0.99),
        ),
        ("CPU of a host", "of a core", found["host_use"], outcome.host_use),
        ("CPU of a gateway", "of a core", found["gateway_use"], outcome.gateway_use),
        ("fail-over, median", "s", found["failover_seconds"]["p50"], percentile(outcome.failover_seconds, 0.5)),
        ("fail-over, last", "s", found["failover_seconds"]["max"], max(outcome.failover_seconds, default=math.nan)),
    ]
    return [(name, f"{one:.3g} {unit}", f"{other:.3g} {unit}") for name, unit, one, other in rows]


def with_default_lease(costs: Costs) -> Costs:
    """The costs with leases of 10 seconds, as hosts have them by default. The benchmark uses shorter ones."""
    share = costs.lease_seconds / LEASE_SECONDS
    # Hosts look for shards without an owner forty times in the time of a lease.
    later = (LEASE_SECONDS - costs.lease_seconds) / 40
    claims = [one + later * at / len(costs.claim_seconds) for at, one in enumerate(costs.claim_seconds)]
    return replace(costs, lease_seconds=LEASE_SECONDS, claim_seconds=claims, host_rest_use=costs.host_rest_use * share)


def capacity_rows(costs: Costs, sizes: tuple[int, ...], seconds: float) -> list[Outcome]:
    found = []
    for sessions in sizes:
        load = Load(sessions)
        # Beyond a million, more of the same would only take longer to simulate.
        is_whole = sessions <= 1_000_000
        part = load if is_whole else replace(load, sessions=1_000_000)
        plan = plan_for(costs, part)
        outcome = Simulation(costs, part, plan).run(seconds, rack_dies_at=seconds / 2)
        if not is_whole:
            factor = sessions / 1_000_000
            outcome.plan = plan_for(costs, load)
            outcome.load, outcome.log_tb = load, outcome.log_tb * factor
        found.append(outcome)
    return found


def capacity_cells(costs: Costs, outcomes: list[Outcome]) -> Rows:
    rows: Rows = []
    for one in outcomes:
        load, plan = one.load, one.plan
        single = load.turns_per_second * costs.commits_per_turn / costs.commits_per_second
        frame = f"{percentile(one.first_frame_ms, 0.5):.0f} / {percentile(one.first_frame_ms, 0.99):.0f} ms"
        dead = f"{percentile(one.failover_seconds, 0.5):.1f} / {max(one.failover_seconds, default=math.nan):.1f} s"
        rows.append(
            (
                *(f"{load.sessions:,}", f"{load.sessions * load.active_share:,.0f}", str(plan.hosts)),
                *(str(plan.gateways), str(plan.streams), f"{single:.0%}", f"{one.lease_use:.1%}"),
                *(f"{one.memory_gb_per_host:.2f} GB", f"{one.log_tb * 1000:,.0f} GB", frame, dead),
            )
        )
    return rows


def draw(costs: Costs, outcomes: list[Outcome], path: Path) -> None:
    """How busy one log stream is as the sessions grow, the machines that are needed, and the fail-over of a rack."""
    import matplotlib
    from matplotlib.figure import Figure
    from plots import STYLE

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 6.4), layout="constrained")
        upper, lower = figure.subplots(2, 1)
        sessions = [one.load.sessions for one in outcomes]
        upper.plot(sessions, [one.plan.hosts for one in outcomes], "o-", color="#0072B2", label="hosts (one core each)")
        upper.plot(sessions, [one.plan.gateways for one in outcomes], "s-", color="#E69F00", label="gateways")
        upper.plot(sessions, [one.plan.streams for one in outcomes], "D-", color="#009E73", label="log streams")
        for (limit, what), shade in zip(find_limits(costs), ("#D55E00", "#CC79A7"), strict=True):
            label = f"full: {what.partition(',')[0]}, {limit:,.0f} sessions"
            upper.axvline(limit, color=shade, linestyle="--", label=label)
        upper.set_xscale("log")
        upper.set_yscale("log")
        upper.set_xlabel("sessions, 1 % of them in a turn")
        upper.set_title("What a number of sessions needs, each part half busy", loc="left", fontsize=11)
        upper.legend(frameon=False)
        largest = next(one for one in reversed(outcomes) if one.load.sessions <= 1_000_000)
        times = sorted(largest.failover_seconds)
        lower.plot(times, [(at + 1) / len(times) for at in range(len(times))], color="#0072B2")
        lower.axvline(costs.lease_seconds, color="#999999", linestyle=":", label="the lease")
        lower.set_xlim(left=0)
        lower.set_xlabel("seconds after the death of a rack")
        lower.set_ylabel("part of its turns that run again")
        title = (
            f"A rack dies: {largest.plan.dead_hosts} of {largest.plan.hosts} hosts, {largest.load.sessions:,} sessions"
        )
        lower.set_title(title, loc="left", fontsize=11)
        lower.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def simulate_tables(measured: dict[str, Any], costs: Costs, outcomes: list[Outcome]) -> dict[str, Rows]:
    """The tables that take minutes, without their heads."""
    return {"check": [*check(measured, costs)], "capacity": capacity_cells(costs, outcomes)}


def parts(measured: dict[str, Any], costs: Costs, simulated: dict[str, Rows]) -> dict[str, str]:
    """The generated parts of the page."""
    limits = [
        f"- With {sessions:,.0f} sessions, {what}, is full."
        for sessions, what in find_limits(with_default_lease(costs))
    ]
    plan, machine = measured["plan"], ", ".join(f"{name} {text}" for name, text in measured["machine"].items())
    return {
        "measured": "\n".join(measured_table(measured)),
        "conditions": f"Measured with {plan['sessions']:,} sessions on {plan['hosts']} hosts. Machine: {machine}.",
        "check": "\n".join(table(("benchmark", "measured", "simulated"), simulated["check"])),
        "capacity": "\n".join(table(CAPACITY, simulated["capacity"])),
        "limits": "\n".join(limits),
    }


def measured_table(measured: dict[str, Any]) -> Iterator[str]:
    """The figures of the benchmark that a reader asks for first."""
    found = measured["figures"]
    single, frame, commands = found["single"], found["frame"], found["commands"]
    failover, idle, commit = found["failover"], found["idle"], found["commit"]
    lazy = found["commit, lazy"]
    rows = [
        ("prompt to first frame, one machine, p50 / p99", f"{single['p50 ms']:.1f} / {single['p99 ms']:.1f} ms"),
        ("prompt to first frame, cluster, p50 / p99", f"{frame['p50 ms']:.1f} / {frame['p99 ms']:.1f} ms"),
        ("durable commands per second, 32 at a time", f"{commands['per second']:,.0f}"),
        ("commit, `sync_interval: always` / default", f"{commit[ONE]:.2f} / {lazy[ONE]:.2f} ms"),
        ("commits per second of one log, always / default", f"{commit[MANY]:,.0f} / {lazy[MANY]:,.0f}"),
        ("memory of a loaded session", f"{idle['KB per loaded session']:,.0f} KB"),
        ("memory of an evicted session", f"{idle['KB per evicted session']:,.1f} KB"),
        ("a session on NATS after one turn", f"{idle['KB per session on NATS']:,.0f} KB"),
        (
            f"fail-over, lease {measured['costs']['lease_seconds']:g} s, {failover['sessions']:.0f} sessions",
            f"p50 {failover['p50 s']:.2f} s, p99 {failover['p99 s']:.2f} s, last {failover['last s']:.2f} s",
        ),
    ]
    return table(("", "measured"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, default=MEASURED, help="the figures that bench/scale.py --json wrote")
    parser.add_argument("--sessions", type=int, help="only this many, instead of a table of sizes")
    parser.add_argument("--hosts", type=int, help="with --sessions: this many hosts, whatever they need")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--write", action="store_true", help="write docs/scale/simulated.json and its plot; needs the extra plots"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    measured = json.loads(given.costs.read_text(encoding="utf-8"))
    costs = Costs(**measured["costs"])
    if given.sessions:
        load = Load(given.sessions)
        plan = plan_for(costs, load)
        plan = replace(plan, hosts=given.hosts or plan.hosts)
        outcomes = [Simulation(costs, load, plan).run(given.seconds, rack_dies_at=given.seconds / 2)]
    else:
        outcomes = capacity_rows(with_default_lease(costs), SIZES, given.seconds)
    simulated = simulate_tables(measured, costs, outcomes)
    if given.json:
        print(json.dumps([asdict(one) for one in outcomes]))
    else:
        print("\n\n".join(parts(measured, costs, simulated).values()))
    if given.write:
        SIMULATED.write_text(json.dumps(simulated, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        draw(with_default_lease(costs), outcomes, MEASURED.with_name("capacity.svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
