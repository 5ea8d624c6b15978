"""One question, several clients that answer at the same moment: exactly one decision counts.

    python -m tests.stress.gateway.one_decision --rounds 1000 --kills 10 --seed 1

In each round, the session asks whether a command may run. Three clients answer at once, over a socket and over HTTP,
with different decisions. Exactly one must win, and the other two must be told who decided. What happens to the command
must be what the winner decided. Before some rounds' answers, the server dies with SIGKILL and starts again: the inbox
must still hold the question, and the answer must reach the resumed session. The exit code is 0 if that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from tests.helpers.gateway import Server, Viewer

NAMES = ("ann", "bob", "cleo")


class Rounds:
    def __init__(self, server: Server, session_id: str, viewer: Viewer, tokens: dict[str, str], dice: Random) -> None:
        self._server = server
        self._session_id = session_id
        self._viewer = viewer
        self._tokens = tokens
        self._dice = dice
        self.problems: list[str] = []

    async def play(self, number: int, *, kill: bool) -> None:
        made = self._server.root / f"made-{number}"
        prompt = f'call Bash {{"command": "touch made-{number}", "description": "Make a file"}}'
        before = len(self._viewer.results())
        await self._server.request("POST", f"/sessions/{self._session_id}/prompts", {"content": prompt})
        question = await self._wait_for_question()
        if kill:
            await self._server.kill()
            await self._server.start()
            if await self._list_questions() != [question]:
                self.problems.append(f"round {number}: the inbox lost its question")
        answers = await asyncio.gather(*(self._answer(name, question) for name in NAMES))
        await self._viewer.wait_for(lambda: len(self._viewer.results()) > before)
        winners = [name for name, status, _, _ in answers if status == 200]
        if len(winners) != 1:
            self.problems.append(f"round {number}: {len(winners)} winners: {answers}")
            return
        (winner,) = winners
        for name, status, allows, body in answers:
            if name == winner and made.exists() != allows:
                self.problems.append(f"round {number}: {name} said {allows}, and the file is there: {made.exists()}")
            if name != winner and (status != 409 or repr(winner) not in body["error"]["message"]):
                self.problems.append(f"round {number}: {name} was told {status} {body}")
        _, recorded = await self._server.request("GET", f"/questions/{self._session_id}/{question}")
        if recorded["decided_by"] != winner:
            self.problems.append(f"round {number}: recorded {recorded['decided_by']}, won by {winner}")

    async def _wait_for_question(self) -> str:
        while not (found := await self._list_questions()):  # noqa: ASYNC110  # it is in another process
            await asyncio.sleep(0.005)
        return found[0]

    async def _list_questions(self) -> list[str]:
        _, body = await self._server.request("GET", f"/questions?session={self._session_id}")
        return [question["request_id"] for question in body["questions"]]

    async def _answer(self, name: str, question: str) -> tuple[str, int, bool, Any]:
        allows = self._dice.random() < 0.5
        answer = {"behavior": "allow", "updatedInput": {}} if allows else {"behavior": "deny", "message": "No."}
        if allows:
            answer.pop("updatedInput")
        path = f"/questions/{self._session_id}/{question}/answer"
        status, body = await self._server.request("POST", path, answer, self._tokens[name])
        return name, status, allows, body


async def run(folder: Path, rounds: int, kills: int, seed: int) -> list[str]:
    dice = Random(seed)
    async with Server(folder, "--model", "offline") as server:
        tokens = {}
        for name in NAMES:
            status, made = await server.request("POST", "/tokens", {"name": name, "scopes": ["approve"]})
            assert status == 201, made
            tokens[name] = made["token"]
        session_id = await server.create()
        viewer = Viewer(server, session_id)
        reading = asyncio.create_task(viewer.run())
        play = Rounds(server, session_id, viewer, tokens, dice)
        kill_at = set(dice.sample(range(rounds), kills))
        for number in range(rounds):
            await play.play(number, kill=number in kill_at)
        reading.cancel()
        report(f"{rounds} rounds, {kills} kills")
        return play.problems


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(run(Path(folder), given.rounds, given.kills, given.seed))
    for problem in (*problems, f"{len(problems)} problems"):
        report(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
