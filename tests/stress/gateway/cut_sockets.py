"""Sockets cut at random while turns stream, and the server killed among them: every viewer sees every line once.

    python -m tests.stress.gateway.cut_sockets --cuts 1000 --kills 20 --seed 1 --isolation process

Sessions get prompts without a pause: texts, tool calls, waits. Three viewers follow each session. Their sockets are cut
at random moments, and sometimes the server dies with SIGKILL and starts again. At the end, every viewer must have the
lines of the log: all of them, once, in order, byte for byte; and every prompt must have exactly one result. The exit
code is 0 if that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from parley.gateway.session_log.session_log import SessionLog
from tests.helpers.gateway import Server, Viewer
from tests.helpers.patience import PATIENCE_SECONDS

VIEWERS = 3
PROMPTS = (
    "say {text}",
    "think {text}\nsay {text}",
    'call Read {{"file_path": "notes.txt"}}\nsay {text}',
    "wait 0.05\nsay {text}\nwait 0.05",
    'call Read {{"file_path": "notes.txt"}}\nwait 0.1\ncall Read {{"file_path": "notes.txt"}}\nsay {text}',
)


class Run:
    """One session with its viewers and its stream of prompts."""

    def __init__(self, server: Server, session_id: str, dice: Random) -> None:
        self.session_id = session_id
        self.viewers = [Viewer(server, session_id, partial=at == 0) for at in range(VIEWERS)]
        self.sent: list[str] = []
        self.is_stopped = False
        self._server = server
        self._dice = dice

    async def prompt_until_stopped(self) -> None:
        """Send a prompt, wait for its result, send the next. A request that failed is repeated under the same id."""
        while not self.is_stopped:
            uuid = str(UUID(int=self._dice.getrandbits(128), version=4))
            text = " ".join(self._dice.choice(["alpha", "beta", "gamma"]) for _ in range(self._dice.randint(1, 60)))
            content = self._dice.choice(PROMPTS).format(text=text)
            self.sent.append(uuid)
            await self._send({"content": content, "uuid": uuid})
            viewer = self.viewers[0]
            # Without a limit: on a slow machine, kills may keep a turn from ending for as long as they come.
            await viewer.wait_for(lambda uuid=uuid, viewer=viewer: uuid in finished(viewer), None)

    async def _send(self, body: dict[str, Any]) -> None:
        while True:
            try:
                status, answer = await self._server.request("POST", f"/sessions/{self.session_id}/prompts", body)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            assert status == 202, answer
            return

    def problems(self) -> list[str]:
        """To be asked when the server has ended."""
        with closing(SessionLog(self._server.folder / "config" / "gateway" / "logs" / f"{self.session_id}.log")) as log:
            expected = [(number, line.decode()) for number, line in log.read(0, 1 << 40)]
        found = [
            f"{self.session_id}: viewer {at} has {len(viewer.lines)} lines of {len(expected)}, first difference at"
            f" {first_difference(viewer.lines, expected)}"
            for at, viewer in enumerate(self.viewers)
            if viewer.lines != expected
        ]
        results = Counter(uuid for viewer in self.viewers[:1] for uuid in finished(viewer))
        found += [f"{self.session_id}: {uuid} has {results[uuid]} results" for uuid in self.sent if results[uuid] != 1]
        return found


def finished(viewer: Viewer) -> list[str]:
    return [uuid for result in viewer.results() for uuid in result.get("user_message_uuids", [])]


def first_difference(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> object:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at + 1, left[0], left[1][:100], right[1][:100]
    return min(len(one), len(other)) + 1


async def run(folder: Path, cuts: int, kills: int, sessions: int, seed: int, isolation: str) -> list[str]:
    """Cut sockets `cuts` times, and kill the server `kills` times among them; returns what went wrong."""
    dice = Random(seed)
    async with Server(folder, "--model", "offline", "--isolation", isolation) as server:
        (server.root / "notes.txt").write_text("a\nb\n")
        runs = [Run(server, await server.create(), Random(dice.random())) for _ in range(sessions)]
        readers = [asyncio.create_task(viewer.run()) for one in runs for viewer in one.viewers]
        prompting = [asyncio.create_task(one.prompt_until_stopped()) for one in runs]
        kill_at = set(dice.sample(range(cuts), kills))
        for cut in range(cuts):
            await asyncio.sleep(dice.random() * 0.05)
            if cut in kill_at:
                await server.kill()
                await server.start()
            while not dice.choice(dice.choice(runs).viewers).cut():  # noqa: ASYNC110  # all may be connecting
                await asyncio.sleep(0.01)
            for task in prompting:
                if task.done():
                    task.result()
            if (cut + 1) % 100 == 0:
                report(f"{cut + 1} cuts, {sum(len(one.sent) for one in runs)} prompts")
        # Let the last prompt of each session end, then let every viewer catch up.
        for one in runs:
            one.is_stopped = True
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*prompting)
        for one in runs:
            _, info = await server.request("GET", f"/sessions/{one.session_id}")
            for viewer in one.viewers:
                await viewer.wait_for(lambda viewer=viewer, info=info: viewer.last >= info["last_line"])
        await server.kill(15)
        for reader in readers:
            reader.cancel()
        prompts = sum(len(one.sent) for one in runs)
        lines = sum(len(viewer.lines) for one in runs for viewer in one.viewers)
        report(f"{cuts} cuts, {kills} kills, {prompts} prompts, {lines} lines seen by {len(readers)} viewers")
        return [problem for one in runs for problem in one.problems()]


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", choices=["task", "process"], default="task")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(run(Path(folder), given.cuts, given.kills, given.sessions, given.seed, given.isolation))
    for problem in (*problems, f"{len(problems)} problems"):
        report(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
