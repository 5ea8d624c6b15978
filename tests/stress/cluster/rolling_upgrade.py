"""A rolling upgrade under load, to a build that writes a new kind of record.

    python -m tests.stress.cluster.rolling_upgrade --sessions 12 --hosts 3 --seed 1

The new build is a copy of this source tree with another version of records and a record that this one does not know.
The hosts are replaced one after the other: a new one starts, an old one drains. In the middle a new host is killed, so
that sessions which only new hosts can read look for an owner while old ones live. No prompt may fail, and no old host
may write to a session after a new one has.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from random import Random

import msgspec

from parley.cluster.session_log import VERSION, BatchMessage
from tests.helpers import paths
from tests.helpers.cluster_processes import RunningCluster
from tests.stress.cluster.faults import Report, Run, print_line
from tests.stress.cluster.load import Talker, read_lines_up_to, start_talkers

NEW_KIND = '''
class NoteRecord(Record, frozen=True, kw_only=True, tag="note"):
    """A kind of record that older versions do not know."""

    text: str


AnyRecord = (
    NoteRecord
    |'''
PATCHES = {
    "gateway/session_log/records.py": (
        ("AnyRecord = (\n   ", NEW_KIND),
        ("case OwnerRecord() | ", "case OwnerRecord() | NoteRecord() | "),
    ),
    "cluster/session_log.py": (
        (f"\nVERSION = {VERSION}\n", f"\nVERSION = {VERSION + 1}\n"),
        ("records=[*prefix, *records])", 'records=[*prefix, *records, NoteRecord(text="new")])'),
        ("    NewerVersion,\n", "    NewerVersion,\n    NoteRecord,\n"),
    ),
}
"""What the new build changes in `parley/`."""


def make_new_build(folder: Path) -> Path:
    """A source tree with the patches; returns its root, for PYTHONPATH."""
    shutil.copytree(paths.SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in PATCHES.items():
        path = folder / "parley" / name
        text = path.read_text()
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        path.write_text(text)
    return folder


class Upgrade:
    def __init__(self, cluster: RunningCluster, run: Run, build: Path, pause_seconds: float) -> None:
        self._cluster = cluster
        self._run = run
        self._environment = {"PYTHONPATH": str(build)}
        self._pause_seconds = pause_seconds
        self.new_names: set[str] = set()
        """The names that hosts of the new build have had."""

    async def replace_all(self) -> None:
        old = list(self._cluster.hosts)
        for number, host in enumerate(old):
            await self._start_new(f"new-{number}")
            await self._cluster.wait_until_owned()
            await self._talk_on()
            if number == len(old) // 2:
                await self._kill_new()
            code = await host.kill(signal.SIGTERM)
            if code:
                self._run.report.problems.append(f"the host {host.name} ended with code {code}: {host.stderr[-3:]}")
            await self._cluster.wait_until_owned()
            await self._talk_on()
            self._run.report.count("hosts replaced")

    async def _kill_new(self) -> None:
        """Kill the oldest of the new hosts. An old host must not take its sessions."""
        new = next(host for host in self._cluster.hosts if host.name in self.new_names)
        hit = await self._run.owned_sessions(new.name)
        await new.kill()
        await self._run.probe(hit)
        await new.start()
        self.new_names.add(new.name)

    async def _start_new(self, name: str) -> None:
        new = await self._cluster.add_host(name, environment=self._environment)
        self.new_names.add(new.name)

    async def _talk_on(self) -> None:
        """Let every user send some prompts."""
        await asyncio.sleep(self._pause_seconds)
        self._run.check_talkers()


async def check_owners(cluster: RunningCluster, talker: Talker, new_names: set[str], report: Report) -> None:
    """No host of the old build writes after one of the new build."""
    is_upgraded, log, key = False, cluster.connection.log, cluster.key(talker.session_id)
    snapshot = await log.load_snapshot(key)
    async for _, data in log.read(key, after=snapshot.sequence if snapshot else 0):
        message = msgspec.msgpack.decode(data, type=BatchMessage)
        if is_upgraded and message.v <= VERSION:
            report.problems.append(f"{talker.session_id}: {message.host} wrote version {message.v} after the new build")
            return
        if (message.v > VERSION) != (message.host in new_names):
            report.problems.append(f"{talker.session_id}: {message.host} wrote version {message.v}")
        is_upgraded = message.v > VERSION
    report.count("sessions upgraded", int(is_upgraded))


async def run(folder: Path, plan: argparse.Namespace) -> Report:
    report, dice = Report("rolling upgrade"), Random(plan.seed)
    build = await asyncio.to_thread(make_new_build, folder / "build")
    async with RunningCluster(folder, hosts=plan.hosts, gateways=1, lease_seconds=plan.lease_seconds) as cluster:
        report.limit_seconds = cluster.lease_seconds + 1
        talkers = await start_talkers(list(cluster.gateways), plan.sessions, folder, dice)
        load = Run(cluster, talkers, dice, report)
        upgrade = Upgrade(cluster, load, build, plan.pause_seconds)
        try:
            await upgrade.replace_all()
            await load.stop_talking()
        finally:
            await load.cancel()
        for talker in talkers:
            final = await read_lines_up_to(cluster.gateways[0], talker.session_id, talker.viewer.last)
            report.problems += talker.problems(final)
            report.count("prompts", len(talker.prompts))
            await check_owners(cluster, talker, upgrade.new_names, report)
    return report


def short_plan() -> argparse.Namespace:
    return argparse.Namespace(sessions=3, hosts=2, lease_seconds=2, pause_seconds=0.2, seed=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--lease-seconds", type=float, default=3)
    parser.add_argument("--pause-seconds", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(run(Path(folder), parser.parse_args()))
    for line in report.lines():
        print_line(line)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
