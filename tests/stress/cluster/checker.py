"""Random operations by several clients on a cluster with faults; then the history is checked, in the style of Jepsen.

    python -m tests.stress.cluster.checker --operations 10000 --clients 8 --seed 1

Clients create, prompt, answer, interrupt, rename, read and delete sessions through gateways and write down what they
were told. Meanwhile a host is killed, frozen, cut off from NATS, silenced, or has its clock set, and a gateway is cut
off. At the end all faults are undone, and `history.py` looks for lost, doubled and reordered effects.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from parley.cluster.takeovers import SURVIVED_SECONDS, release_session
from parley.errors import UsageError
from parley.stores.memory import MemoryStore
from tests.helpers.cluster_processes import RunningCluster
from tests.stress.cluster.faults import Report, print_line
from tests.stress.cluster.history import OK, REFUSED, UNKNOWN, Final, Operation, check
from tests.stress.cluster.load import read_all_lines, result_uuids
from tests.stress.cluster.log_audit import audit_log

WEIGHTS = {"prompt": 40, "read": 25, "rename": 10, "answer": 10, "interrupt": 5, "create": 6, "delete": 4}
MOST_SESSIONS = 24
LEAST_SESSIONS = 4
SETTLE_SECONDS = SURVIVED_SECONDS + 20
"""A session of which two hosts have died may have to wait for others to be tried."""
ALLOWED = {"behavior": "allow"}


class Client:
    """Does one operation after the other. It never repeats one: what was not answered stays unknown."""

    def __init__(self, number: int, checker: Checker) -> None:
        self._number = number
        self._checker = checker
        self._dice = Random(checker.dice.random())

    async def run(self) -> None:
        while self._checker.left > 0:
            self._checker.left -= 1
            kinds = list(WEIGHTS)
            kind = self._dice.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
            if len(self._checker.sessions) < LEAST_SESSIONS:
                kind = "create"
            if kind == "create" and len(self._checker.sessions) >= MOST_SESSIONS:
                kind = "delete"
            if kind == "delete" and len(self._checker.sessions) <= LEAST_SESSIONS:
                kind = "read"
            await self._act(kind)

    async def _act(self, kind: str) -> None:
        session = "" if kind == "create" else self._dice.choice(self._checker.sessions)
        value = str(UUID(int=self._dice.getrandbits(128), version=4)) if kind in ("prompt", "rename") else ""
        operation = Operation(self._number, kind, session, value, time.monotonic())
        self._checker.history.append(operation)
        if kind == "delete":
            self._checker.sessions.remove(session)
        method, path, body = await self._compose(kind, session, value)
        if not path:
            operation.outcome, operation.end = REFUSED, time.monotonic()
            return
        try:
            status, answer = await self._dice.choice(self._checker.cluster.gateways).request(method, path, body)
        except (OSError, ValueError):
            await asyncio.sleep(0.05)
            return
        self._record(operation, status, answer)

    async def _compose(self, kind: str, session: str, value: str) -> tuple[str, str, Any]:
        base = f"/sessions/{session}"
        match kind:
            case "create":
                mode = self._dice.choice(["default", "bypassPermissions"])
                return "POST", "/sessions", {"options": {"permission_mode": mode}}
            case "prompt":
                line = json.dumps({"command": f"echo {value} >> {self._checker.witness}"})
                content = self._dice.choice(["say hello", "wait 0.1\nsay hello", f"call Bash {line}\nsay done"])
                return "POST", f"{base}/prompts", {"content": content, "uuid": value}
            case "answer":
                found = await self._find_question(session)
                return "POST", f"/questions/{session}/{found}/answer" if found else "", ALLOWED
            case "interrupt":
                return "POST", f"{base}/control", {"subtype": "interrupt"}
            case "rename":
                return "POST", f"{base}/control", {"subtype": "rename_session", "title": value}
            case "delete":
                return "DELETE", base, None
        return "GET", base, None

    async def _find_question(self, session: str) -> str:
        try:
            path = f"/questions?session={session}"
            status, found = await self._dice.choice(self._checker.cluster.gateways).request("GET", path)
        except (OSError, ValueError):
            return ""
        questions = found["questions"] if status == 200 else []
        return str(questions[0]["request_id"]) if questions else ""

    def _record(self, operation: Operation, status: int, answer: Any) -> None:
        code = answer.get("error", {}).get("code", "") if isinstance(answer, dict) else ""
        if status < 300:
            operation.outcome = OK
            if operation.kind == "create":
                operation.session = answer["session_id"]
                self._checker.sessions.append(operation.session)
        elif status >= 500 or status == 408:
            operation.outcome = UNKNOWN
            return
        else:
            operation.outcome = REFUSED
            operation.value = code if code == "unknown_session" else operation.value
        operation.end = time.monotonic()
        self._checker.report.count(f"{operation.kind} {operation.outcome}")


class Checker:
    def __init__(self, cluster: RunningCluster, plan: argparse.Namespace) -> None:
        self.cluster = cluster
        self.dice = Random(plan.seed)
        self.left: int = plan.operations
        self.history: list[Operation] = []
        self.sessions: list[str] = []
        self.witness = cluster.folder / "witness.txt"
        self.report = Report("checker")
        self._faults = plan.faults.split(",")
        self._clients = plan.clients

    async def run(self) -> Report:
        clients = [asyncio.create_task(Client(number, self).run()) for number in range(self._clients)]
        faults = asyncio.create_task(self._inject())
        try:
            await asyncio.gather(*clients)
        finally:
            faults.cancel()
            await asyncio.gather(faults, *clients, return_exceptions=True)
        self.report.problems += self.cluster.crashes()
        await self.cluster.heal()
        final = await self._read_final()
        self.report.problems += check(self.history, final)
        self.report.figures = {"operations": len(self.history), **dict(sorted(self.report.figures.items()))}
        return self.report

    async def _inject(self) -> None:
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "cut": self._cut,
            "silence": self._silence,
            "cut_gateway": self._cut_gateway,
            "clock": self._step_clock,
        }
        while True:
            await asyncio.sleep(self.dice.uniform(0.5, 2))
            name = self.dice.choice(self._faults)
            await acts[name]()
            self.report.count(f"faults: {name}")
            await self.cluster.wait_until_owned()

    async def _kill(self) -> None:
        host = self.dice.choice(self.cluster.live_hosts())
        await host.kill()
        await asyncio.sleep(self.dice.random() * self.cluster.lease_seconds)
        await host.start()

    async def _freeze(self) -> None:
        host = self.dice.choice(self.cluster.live_hosts())
        host.freeze()
        try:
            await asyncio.sleep(self.cluster.lease_seconds * self.dice.uniform(0.2, 2))
        finally:
            host.thaw()

    async def _cut(self) -> None:
        await self._break_link(self.dice.choice(self.cluster.live_hosts()).base_name, "cut")

    async def _silence(self) -> None:
        await self._break_link(self.dice.choice(self.cluster.live_hosts()).base_name, "silence")

    async def _cut_gateway(self) -> None:
        await self._break_link(f"gateway-{self.dice.randrange(len(self.cluster.gateways))}", "cut")

    async def _break_link(self, name: str, how: str) -> None:
        link = self.cluster.links[name]
        getattr(link, how)()
        try:
            await asyncio.sleep(self.cluster.lease_seconds * self.dice.uniform(0.2, 2))
        finally:
            link.heal()

    async def _step_clock(self) -> None:
        self.cluster.step_clock(
            self.dice.choice(self.cluster.live_hosts()).name, self.dice.choice([-3600, -5, 5, 3600])
        )

    async def _read_final(self) -> Final:
        """Let every session come to rest, then read all of it."""
        final = Final({}, {}, {}, {})
        for session in sorted({one.session for one in self.history if one.session}):
            if not await self._settle(session):
                continue
            found = await read_all_lines(self.cluster, session)
            final.lines[session] = [line for _, line in found]
            final.results[session] = [uuid for _, line in found for uuid in result_uuids(line)]
            final.prompts[session] = [uuid for _, line in found if (uuid := prompt_uuid(line))]
            state = await self.cluster.read_state(session)
            store = MemoryStore("", state.state.transcripts)
            infos = [store.info(name) for name in store.transcripts]
            titles = [info.title for info in infos if info is not None and info.title]
            final.titles[session] = titles[-1] if titles else ""
            self.report.problems += await audit_log(self.cluster, session)
        final.ran.update(self.witness.read_text().split() if self.witness.exists() else ())
        return final

    async def _settle(self, session: str) -> bool:
        """Answer what a session asks until its acknowledged prompts have ended; False if it cannot be read.

        A session of which hosts have died at random is released, as an operator does.
        """
        gateway, deadline = self.cluster.gateways[0], time.monotonic() + SETTLE_SECONDS
        sent = {
            one.value for one in self.history if one.session == session and one.kind == "prompt" and one.outcome == OK
        }
        answers: list[Any] = []
        seen = 0
        while True:
            status, info = await gateway.request("GET", f"/sessions/{session}")
            if status == 404:
                return False
            if status == 500 and info["error"]["code"] == "hosts_failed":
                with suppress(UsageError):  # the host has not heard of it yet
                    await release_session(self.cluster.connection, session)
                    self.report.count("released")
            if status == 200 and info["open_questions"]:
                _, found = await gateway.request("GET", f"/questions?session={session}")
                answers = [found]
                for question in found["questions"]:
                    path = f"/questions/{session}/{question['request_id']}/answer"
                    answers.append(await gateway.request("POST", path, ALLOWED))
            state = await self.cluster.read_state(session)
            if len(state.lines) > seen:  # it continues
                seen, deadline = len(state.lines), time.monotonic() + SETTLE_SECONDS
            ended = {uuid for line in state.lines for uuid in result_uuids(line.data.decode())}
            if status == 200 and info["state"] in ("idle", "failed") and (sent <= ended or time.monotonic() > deadline):
                return True
            if time.monotonic() > deadline + SETTLE_SECONDS:
                lines = [line.data.decode()[:300] for line in state.lines[-8:]]
                text = f"does not come to rest: {status} {info}; its last lines: {lines}; the last answers: {answers}"
                self.report.problems.append(f"session {session} {text}")
                return False
            await asyncio.sleep(0.1)


def prompt_uuid(line: str) -> str:
    """The id of the prompt that a line shows; empty for other lines."""
    if not line.startswith('{"type":"user"'):
        return ""
    message = json.loads(line)
    content = message["message"]["content"]
    is_result = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
    return "" if is_result else str(message.get("uuid", ""))


async def start_and_check(folder: Path, plan: argparse.Namespace) -> Report:
    async with RunningCluster(
        folder,
        hosts=plan.hosts,
        gateways=2,
        nats_servers=plan.nats_servers,
        lease_seconds=plan.lease_seconds,
        has_links=True,
        has_clocks="clock" in plan.faults,
    ) as cluster:
        return await Checker(cluster, plan).run()


FAULTS = "kill,freeze,cut,silence,cut_gateway,clock"


def short_plan(**changed: Any) -> argparse.Namespace:
    values = {"operations": 100, "clients": 4, "hosts": 2, "nats_servers": 1, "lease_seconds": 2, "seed": 1}
    # A clock that can be set makes every look at it slow.
    faults = FAULTS.removesuffix(",clock")
    return argparse.Namespace(**{**values, "faults": faults, **changed})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--nats-servers", type=int, default=1, choices=[1, 3])
    parser.add_argument("--lease-seconds", type=float, default=3)
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--seed", type=int, default=1)
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(start_and_check(Path(folder), parser.parse_args()))
    for line in report.lines():
        print_line(line)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
