"""Random sessions; then everything but their logs is deleted, and the server gives the same answers as before.

    python -m tests.stress.gateway.only_the_logs --sessions 200 --kills 200 --seed 1
    python -m tests.stress.gateway.only_the_logs --cluster --sessions 20 --moves 10 --seed 1

Sessions of one server live at random: prompts, questions that are allowed, denied, delegated or withdrawn, interrupts,
failures, subagents, compactions, `/clear`, forks and deletions. Meanwhile the server dies with SIGKILL at random
moments; before some of its starts, its projections are deleted. When all sessions are idle, the server is stopped.
Then it is started twice on copies of its state, with its projections and without them. Every answer about sessions,
lines, prompts, turns, costs, searches and questions must be the same, byte by byte, and so must be the event stream
from every cursor, which must also be what viewers saw while it happened.

With `--cluster`, the sessions are those of a cluster, and their hosts are drained or killed: after every session has
moved, the event streams must be the same. The exit code is 0 if that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

from websockets.exceptions import InvalidStatus

from tests.helpers.cluster_processes import RunningCluster
from tests.helpers.gateway import Server, Viewer, following
from tests.helpers.patience import PATIENCE_SECONDS

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")
KEPT = ("logs", "tokens.db", "tokens.db-wal", "tokens.db-shm", "wire", "audit.jsonl", "lock")
"""What is not a projection: the logs, the tokens, and two recordings that nothing follows from."""
OF_THE_MOMENT = ("is_loaded", "clients", "last_line", "state")
"""What a list says about the process and not about the session."""
MAX_SHOWN = 20


class Life:
    """One session, as its clients use it."""

    def __init__(self, server: Server, session_id: str, viewer: Viewer, dice: Random) -> None:
        self.id = session_id
        self.viewer = viewer
        self.is_deleted = False
        self._server = server
        self._dice = dice
        self._prompts = 0

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask until the server is there and answers; it may be killed at any moment."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with suppress(OSError):
                    status, answer = await self._server.request(method, path, body)
                    if status not in (502, 503):
                        return status, answer
                await asyncio.sleep(0.02)

    async def step(self) -> str | None:
        """Do something; returns the id of a session that was made by it."""
        word, dice = self._dice.choice(WORDS), self._dice
        match dice.choice(("say", "say", "ask", "ask", "fail", "agent", "interrupt", "command", "fork")):
            case "say":
                await self._turn(f"think of it\nsay {word} and {dice.choice(WORDS)} {'x' * dice.randrange(2000)}")
            case "fail":
                await self._turn(f"fail 400 {word} is refused")
            case "agent":
                task = {"description": word, "prompt": f"say {word} from below", "subagent_type": "general-purpose"}
                await self._turn(f"call Agent {json.dumps(task)}\nshow")
            case "command":
                await self._turn(dice.choice(("/compact", "/clear", "/cost")))
            case "ask":
                await self._ask(word)
            case "interrupt":
                await self._interrupt(word)
            case "fork":
                status, made = await self.request("POST", f"/sessions/{self.id}/fork", {"title": f"{word} copy"})
                return str(made["session_id"]) if status == 201 else None
        return None

    async def _send(self, content: str) -> str:
        self._prompts += 1
        uuid = f"{self.id}-{self._prompts}"
        status, answer = await self.request("POST", f"/sessions/{self.id}/prompts", {"content": content, "uuid": uuid})
        assert status == 202, answer
        return uuid

    async def _wait_result(self, uuid: str) -> None:
        await self.viewer.wait_for(
            lambda: any(uuid in result.get("user_message_uuids", ()) for result in self.viewer.results())
        )

    async def _turn(self, content: str) -> None:
        await self._wait_result(await self._send(content))

    async def _interrupt(self, word: str) -> None:
        uuid = await self._send(f"say {word}\nwait 0.3\nsay never")
        await asyncio.sleep(self._dice.random() * 0.2)
        await self.request("POST", f"/sessions/{self.id}/control", {"subtype": "interrupt"})
        await self._wait_result(uuid)

    async def _ask(self, word: str) -> None:
        """Let the session ask something, and decide it; or let the turn end with the question open."""
        command = {"command": f"touch {word}", "description": "Make a file"}
        uuid = await self._send(f"call Bash {json.dumps(command)}\nsay done")
        decides = self._dice.choice(("allow", "deny", "delegate", "interrupt"))

        def is_over() -> bool:
            return any(uuid in result.get("user_message_uuids", ()) for result in self.viewer.results())

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_over():
                _, inbox = await self.request("GET", f"/questions?session={self.id}")
                for question in inbox["questions"]:
                    path = f"/questions/{self.id}/{question['request_id']}"
                    if decides == "interrupt":
                        await self.request("POST", f"/sessions/{self.id}/control", {"subtype": "interrupt"})
                        break
                    if decides == "delegate":
                        await self.request("POST", f"{path}/delegate", {"to": "admin"})
                    answer: dict[str, object] = {"behavior": "deny", "message": word}
                    if decides != "deny":
                        answer = {"behavior": "allow", "updatedInput": command}
                    await self.request("POST", f"{path}/answer", answer)
                await asyncio.sleep(0.02)

    async def delete(self) -> None:
        self.is_deleted = self.viewer.has_left = True  # many that try again would use up the requests of their token
        status, answer = await self.request("DELETE", f"/sessions/{self.id}")
        assert status in (204, 404), answer  # the reply to the first try may be lost


class Crowd:
    """All sessions of a run."""

    def __init__(self, server: Server, dice: Random, stack: AsyncExitStack) -> None:
        self.lives: list[Life] = []
        self.has_ended = False
        self._server = server
        self._dice = dice
        self._stack = stack

    def count_lines(self) -> int:
        """How many lines all viewers have seen."""
        return sum(len(life.viewer.lines) for life in self.lives)

    async def add(self, session_id: str) -> Life:
        viewer = await self._stack.enter_async_context(following(self._server, session_id))
        life = Life(self._server, session_id, viewer, Random(self._dice.random()))
        self.lives.append(life)
        return life

    async def live(self, steps: int, titled: bool) -> None:
        """Create a session and let it do so many things."""
        probe = Life(self._server, "", Viewer(self._server, ""), self._dice)
        title = {"title": f"{self._dice.choice(WORDS)} session"} if titled else {}
        status, made = await probe.request("POST", "/sessions", title)
        assert status == 201, made
        life = await self.add(str(made["session_id"]))
        for _ in range(steps):
            if (copy := await life.step()) is not None:
                await (await self.add(copy)).step()
        if self._dice.random() < 0.15:
            await life.delete()


class Keeper:
    """Kills the server while sessions live, each time after one of them has got further."""

    def __init__(self, server: Server, crowd: Crowd, state: Path, dice: Random, kills: int) -> None:
        self._server = server
        self._crowd = crowd
        self._state = state
        self._dice = dice
        self._left = kills

    async def run(self) -> None:
        while self._left:
            self._left -= 1
            await self._wait_for_progress()
            await asyncio.sleep(self._dice.uniform(0.1, 1.5))
            await self._server.kill()
            if self._dice.random() < 0.5:
                delete_projections(self._state)
            await self._server.start()

    async def _wait_for_progress(self) -> None:
        seen = self._crowd.count_lines()
        while True:
            if self._crowd.count_lines() > seen or self._crowd.has_ended:
                return
            await asyncio.sleep(0.02)


def delete_projections(state: Path) -> None:
    for path in state.iterdir():
        if path.name not in KEPT:
            path.unlink()


async def read_answers(
    server: Server, sessions: Sequence[str], questions: Sequence[tuple[str, str]]
) -> dict[str, bytes]:
    """Everything that the API says about sessions, by path."""
    paths = ["/sessions", "/costs", "/costs?days=2", "/questions", "/tokens", "/sessions?state=failed"]
    paths += [f"/sessions?search={word}" for word in WORDS]
    for session_id in sessions:
        paths += [
            f"/sessions/{session_id}",
            *(f"/sessions/{session_id}/{name}" for name in ("index", "turns", "lines")),
        ]
        paths.append(f"/sessions/{session_id}/lines?before=7&limit=3")
    paths += [f"/questions/{session_id}/{request_id}" for session_id, request_id in questions]
    return {path: (await server.fetch("GET", path, None, bearer(server)))[2] for path in paths}


def bearer(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


async def read_stream(server: Server, session_id: str, after: int, count: int) -> list[tuple[int, str]]:
    """The numbered lines that a new connection gets."""
    lines: list[tuple[int, str]] = []
    path = f"/sessions/{session_id}/ws?numbered=true&after={after}"
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            connected = await server.connect(path)
        except InvalidStatus as exc:
            answer = (await server.fetch("GET", f"/sessions/{session_id}/lines", None, bearer(server)))[2]
            raise AssertionError(f"{path}: {exc}; its lines: {answer[:300]!r}") from None
        async with connected as socket:
            while len(lines) < count:
                number, _, line = str(await socket.recv()).rstrip("\n").partition("\t")
                lines.append((int(number), line))
    return lines


async def compare_streams(server: Server, lives: Sequence[Life], cursors: int, dice: Random) -> list[str]:
    """Every cursor that a client may hold leads to what viewers saw."""
    problems: list[str] = []
    for life in lives:
        seen = life.viewer.lines
        if [number for number, _ in seen] != list(range(1, len(seen) + 1)):
            problems.append(f"{life.id}: a viewer has missed lines or got them twice")
        every = range(len(seen))
        problems += [
            f"{life.id}: the stream after line {after} is another one"
            for after in (every if len(seen) <= cursors else sorted(dice.sample(every, cursors)))
            if await read_stream(server, life.id, after, len(seen) - after) != seen[after:]
        ]
    return problems


def compare_answers(first: dict[str, bytes], second: dict[str, bytes], what: str) -> list[str]:
    return [
        f"{what}: {path}: {first[path][:300]!r} became {second[path][:300]!r}"
        for path in first
        if first[path] != second[path]
    ]


async def wait_idle(server: Server) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            sessions = (await server.get("/sessions"))["sessions"]
            if all(info["state"] in ("idle", "failed") for info in sessions):
                return
            await asyncio.sleep(0.05)


def without_moment(answer: bytes) -> bytes:
    found = json.loads(answer)
    for info in [found, *found.get("sessions", ())] if isinstance(found, dict) else ():
        for name in OF_THE_MOMENT:
            info.pop(name, None)
    return json.dumps(found).encode()


async def run(folder: Path, *, sessions: int, kills: int, steps: int, seed: int, cursors: int = 50) -> list[str]:
    """What went wrong."""
    dice, problems = Random(seed), list[str]()
    state = folder / "state"
    server = Server(folder, "--state", str(state), "--model", "offline")
    async with AsyncExitStack() as stack:
        await server.start()
        stack.push_async_callback(server.kill)
        crowd = Crowd(server, dice, stack)
        keeper = asyncio.create_task(Keeper(server, crowd, state, Random(seed + 1), kills).run())
        gate = asyncio.Semaphore(8)

        async def live(number: int) -> None:
            async with gate:
                await crowd.live(dice.randrange(1, steps + 1), number % 2 == 0)

        await asyncio.gather(*(live(number) for number in range(sessions)))
        crowd.has_ended = True
        await keeper
        await wait_idle(server)
        kept = [life for life in crowd.lives if not life.is_deleted]
        ids = [life.id for life in crowd.lives]
        for life in kept:
            info = await server.get(f"/sessions/{life.id}/lines?limit=1")
            await life.viewer.wait_for(lambda life=life, last=info["last"]: life.viewer.last >= last)
        asked = [
            (life.id, str(line["request_id"]))
            for life in crowd.lives
            for line in (json.loads(text) for _, text in life.viewer.lines)
            if line["type"] == "control_request"
        ]
        before = await read_answers(server, ids, asked)
        await server.kill(signal.SIGTERM)
        shutil.copytree(state, folder / "copy")
        await server.start()
        with_projections = await read_answers(server, ids, asked)
        problems += await compare_streams(server, kept, cursors, dice)
        await server.kill()
        shutil.rmtree(state)
        (folder / "copy").rename(state)
        delete_projections(state)
        await server.start()
        without = await read_answers(server, ids, asked)
        problems += await compare_streams(server, kept, cursors, dice)
    problems += compare_answers(with_projections, without, "without its projections")
    stable = [path for path in before if path.startswith(("/sessions", "/costs", "/questions"))]
    problems += compare_answers(
        {path: without_moment(before[path]) for path in stable},
        {path: without_moment(without[path]) for path in stable},
        "after a restart",
    )
    return problems


async def run_cluster(folder: Path, *, sessions: int, moves: int, steps: int, seed: int) -> list[str]:
    """The same for sessions that move between hosts."""
    dice, problems = Random(seed), list[str]()
    async with RunningCluster(folder, hosts=2, lease_seconds=2) as cluster, AsyncExitStack() as stack:
        server = cluster.gateways[0]
        crowd = Crowd(server, dice, stack)
        await asyncio.gather(*(crowd.live(dice.randrange(1, steps + 1), number % 2 == 0) for number in range(sessions)))
        await wait_idle(server)
        kept = [life for life in crowd.lives if not life.is_deleted]
        for life in kept:
            last = len((await cluster.read_state(life.id)).lines)
            await life.viewer.wait_for(lambda life=life, last=last: life.viewer.last >= last)
        for move in range(moves):
            host = cluster.live_hosts()[0]
            await host.kill(signal.SIGTERM if move % 2 else signal.SIGKILL)
            await host.start()
            await cluster.wait_until_owned()
            problems += await compare_streams(server, kept, 5, dice)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--moves", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true")
    plan = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        shared = {"sessions": plan.sessions, "steps": plan.steps, "seed": plan.seed}
        folder = Path(name)
        if plan.cluster:
            problems = asyncio.run(run_cluster(folder, moves=plan.moves, **shared))
        else:
            problems = asyncio.run(run(folder, kills=plan.kills, **shared))
    for problem in problems[:MAX_SHOWN]:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"{plan.sessions} sessions, seed {plan.seed}: {len(problems)} problems\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
