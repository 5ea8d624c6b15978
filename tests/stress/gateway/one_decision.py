"""One question, several clients that answer at the same moment: exactly one decision counts.

    python -m tests.stress.gateway.one_decision --rounds 1000 --kills 10 --seed 1 --isolation process

Several sessions of one server ask whether a command may run, each in its own round. Three clients answer each question
at once, with random decisions, over HTTP or over a socket. Exactly one must win, the others must be told who decided,
and what happens to the command must be what the winner decided. Before some answers, the server dies with SIGKILL and
starts again: the inbox must still hold every question, and each answer must reach its resumed session. The exit code is
0 if that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from websockets.asyncio.client import ClientConnection

from tests.helpers.gateway import Server, Viewer
from tests.helpers.patience import PATIENCE_SECONDS

NAMES = ("ann", "bob", "cleo")
MAX_SHOWN = 20


@dataclass(frozen=True)
class Outcome:
    """What one client learned about its answer."""

    name: str
    allows: bool
    refusal: str | None
    """What it was told if its answer did not count."""


class Room:
    """One session and those who answer its questions."""

    def __init__(self, server: Server, session_id: str, tokens: dict[str, str], dice: Random) -> None:
        self.session_id = session_id
        self.viewer = Viewer(server, session_id)
        self.problems: list[str] = []
        self._server = server
        self._tokens = tokens
        self._dice = dice

    async def ask(self, number: int) -> None:
        """Let the session ask whether it may make a file."""
        prompt = f'call Bash {{"command": "touch made-{number}", "description": "Make a file"}}'
        status, body = await self._server.request(
            "POST", f"/sessions/{self.session_id}/prompts", {"content": prompt, "uuid": f"round-{number}"}
        )
        assert status == 202, body

    async def answer(self, number: int, question: str) -> Counter[str]:
        """Three answers at once; then what came of them. Returns who won, and how it answered."""
        before, made = len(self.viewer.results()), self._server.root / f"made-{number}"
        on_sockets = [name for name in NAMES if self._dice.random() < 0.5]
        path = f"/sessions/{self.session_id}/ws"
        async with asyncio.timeout(PATIENCE_SECONDS), AsyncExitStack() as stack:
            sockets = {
                name: await stack.enter_async_context(await self._server.connect(path, self._tokens[name]))
                for name in on_sockets
            }
            order = self._dice.sample(NAMES, len(NAMES))
            outcomes = await asyncio.gather(*(self._answer(name, question, sockets.get(name)) for name in order))
        await self.viewer.wait_for(lambda: len(self.viewer.results()) > before)
        winners = [outcome for outcome in outcomes if outcome.refusal is None]
        if len(winners) != 1:
            self.problems.append(f"round {number}: {len(winners)} winners: {outcomes}")
            return Counter()
        (winner,) = winners
        if made.exists() != winner.allows:
            self.problems.append(f"round {number}: {winner}, and the file is there: {made.exists()}")
        for outcome in outcomes:
            refusal = outcome.refusal
            if refusal is not None and not (refusal.startswith("already_decided: ") and repr(winner.name) in refusal):
                self.problems.append(f"round {number}: {winner.name} decided, but {outcome}")
        _, recorded = await self._server.request("GET", f"/questions/{self.session_id}/{question}")
        behavior = "allow" if winner.allows else "deny"
        if (recorded["decided_by"], recorded["behavior"]) != (winner.name, behavior):
            self.problems.append(f"round {number}: recorded {recorded}, won by {winner}")
        return Counter([winner.name, "socket" if winner.name in on_sockets else "HTTP"])

    async def _answer(self, name: str, question: str, socket: ClientConnection | None) -> Outcome:
        allows = self._dice.random() < 0.5
        answer = {"behavior": "allow"} if allows else {"behavior": "deny", "message": "No."}
        if socket is None:
            path = f"/questions/{self.session_id}/{question}/answer"
            status, body = await self._server.request("POST", path, answer, self._tokens[name])
            error = body.get("error", {})
            return Outcome(name, allows, None if status == 200 else f"{error.get('code')}: {error.get('message')}")
        response = {"subtype": "success", "request_id": question, "response": answer}
        await socket.send(json.dumps({"type": "control_response", "response": response}))
        # A request is answered after the lines before it, so a refusal comes before its response.
        await socket.send('{"type":"control_request","request_id":"after","request":{"subtype":"get_status"}}')
        refusal = None
        async for frame in socket:
            line = json.loads(frame)
            if line.get("code"):
                refusal = f"{line['code']}: {line['content']}"
            if line["type"] == "control_response":
                break
        return Outcome(name, allows, refusal)


class Rounds:
    """The same round in several sessions at once."""

    def __init__(self, server: Server, rooms: list[Room]) -> None:
        self._server = server
        self._rooms = rooms
        self.problems: list[str] = []
        self.won: Counter[str] = Counter()
        """How often each client won, and each way to answer."""

    async def play(self, first: int, count: int, *, kill: bool) -> None:
        rooms = self._rooms[:count]
        await asyncio.gather(*(room.ask(number) for number, room in enumerate(rooms, first)))
        questions = await self._wait_for_questions(count)
        if kill:
            await self._server.kill()
            await self._server.start()
            if (found := await self._list_questions()) != questions:
                self.problems.append(f"round {first}: the inbox had {questions}, and after the kill {found}")
        won = await asyncio.gather(
            *(room.answer(number, questions[room.session_id]) for number, room in enumerate(rooms, first))
        )
        self.won.update(sum(won, Counter()))
        if left := await self._list_questions():
            self.problems.append(f"round {first}: still open: {left}")

    async def _wait_for_questions(self, count: int) -> dict[str, str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found := await self._list_questions()) < count:  # noqa: ASYNC110  # it is in another process
                await asyncio.sleep(0.005)
        return found

    async def _list_questions(self) -> dict[str, str]:
        """The inbox: the open question of each session."""
        _, body = await self._server.request("GET", "/questions")
        return {question["session"]: question["request_id"] for question in body["questions"]}


async def run(folder: Path, rounds: int, kills: int, sessions: int, seed: int, isolation: str) -> list[str]:
    """Play so many rounds, with a kill before so many of the answers; returns what went wrong."""
    dice = Random(seed)
    async with Server(folder, "--model", "offline", "--isolation", isolation) as server:
        tokens = {}
        for name in NAMES:
            status, made = await server.request("POST", "/tokens", {"name": name, "scopes": ["approve"]})
            assert status == 201, made
            tokens[name] = made["token"]
        rooms = [Room(server, await server.create(), tokens, dice) for _ in range(sessions)]
        reading = [asyncio.create_task(room.viewer.run()) for room in rooms]
        play = Rounds(server, rooms)
        starts = range(0, rounds, sessions)
        kill_at = set(dice.sample(starts, min(kills, len(starts))))
        for first in starts:
            await play.play(first, min(sessions, rounds - first), kill=first in kill_at)
            if (first // sessions + 1) % 10 == 0:
                report(f"{first + sessions} rounds")
        for task in reading:
            task.cancel()
        wins = ", ".join(f"{name} {count}" for name, count in sorted(play.won.items()))
        report(f"{rounds} rounds in {sessions} sessions, {len(kill_at)} kills; won by {wins}")
        return [*play.problems, *(problem for room in rooms for problem in room.problems)]


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", choices=["task", "process"], default="task")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(
            run(Path(folder), given.rounds, given.kills, given.sessions, given.seed, given.isolation)
        )
    for problem in (*problems[:MAX_SHOWN], f"{len(problems)} problems"):
        report(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
