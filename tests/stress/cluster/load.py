"""Users of a cluster: real clients that talk to sessions through gateways, and remember what they were promised.

A `Talker` sends prompts to one session, one after the other, under an id of its own, and repeats a request that failed.
Some prompts run a command that appends a line to a file: the witness of how often it ran. Some ask a question, which
stays open for a while. `problems()` compares what the talker was told with what the session says at the end.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from tests.helpers.cluster_processes import RunningCluster
from tests.helpers.gateway import Server, Viewer
from tests.helpers.patience import PATIENCE_SECONDS
from tests.stress.cluster.history import DOUBLED, LOST, RAN_TWICE

RETRY_SECONDS = 0.05
KINDS = ("say", "think", "wait", "tool", "slow_tool", "question")
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which a client tries again: the gateway or the host could not do it now."""


@dataclass
class Prompt:
    """What was asked of a session, and what is known about it."""

    uuid: str
    kind: str
    is_acknowledged: bool = False
    question: str = ""
    """The id of the question that it asked."""


@dataclass
class Talker:
    """The user of one session. `gateways`: which of them a request uses is random."""

    gateways: list[Server]
    session_id: str
    witness: Path
    dice: Random
    kinds: tuple[str, ...] = KINDS
    think_seconds: float = 0
    """The longest pause between a result and the next prompt."""
    most_prompts: int = 100
    """So that sessions do not grow without end. Then another talker begins another session."""
    prompts: list[Prompt] = field(default_factory=list)
    is_stopped: bool = False
    holds_questions: bool = False
    """While it is set, questions are not answered."""

    def __post_init__(self) -> None:
        self.viewer = Viewer(self.dice.choice(self.gateways), self.session_id)
        self._looked_at = 0
        """How many lines of the viewer are in the two below."""
        self._finished: set[str] = set()
        self._open_question = ""

    async def run(self) -> None:
        """Send a prompt, wait for its result, send the next."""
        reading = asyncio.create_task(self.viewer.run())
        try:
            while not self.is_stopped and len(self.prompts) < self.most_prompts:
                await self._talk()
                await asyncio.sleep(self.dice.random() * self.think_seconds)
        finally:
            reading.cancel()
            self.viewer.cut()

    async def _talk(self) -> None:
        uuid = str(UUID(int=self.dice.getrandbits(128), version=4))
        prompt = Prompt(uuid, self.dice.choice(self.kinds))
        self.prompts.append(prompt)
        body = {"content": self._compose(prompt), "uuid": uuid}
        status, answer = await self.request("POST", f"/sessions/{self.session_id}/prompts", body)
        assert status == 202, (status, answer)
        prompt.is_acknowledged = True
        while True:
            seen = len(self.viewer.lines)
            self._look()
            if uuid in self._finished:
                return
            if prompt.kind == "question" and (found := self.open_question()):
                prompt.question = found
                await self._answer(found)
            await self._wait_for_lines(seen, prompt)

    def _compose(self, prompt: Prompt) -> str:
        words = " ".join(self.dice.choice(["alpha", "beta", "gamma"]) for _ in range(self.dice.randint(1, 30)))
        line = f"echo {prompt.uuid} >> {self.witness}"
        command = json.dumps({"command": line})
        slow = json.dumps({"command": f"{line}; sleep 0.3; echo done"})
        ask = json.dumps({"command": f"{line} # asks"})
        return {
            "say": f"say {words}",
            "think": f"think {words}\nsay {words}",
            "wait": f"wait 0.2\nsay {words}\nwait 0.2",
            "tool": f"call Bash {command}\nsay {words}",
            "slow_tool": f"call Bash {slow}\nwait 0.1\nsay {words}",
            "question": f"call Bash {ask}\nsay {words}",
        }[prompt.kind]

    def open_question(self) -> str:
        """The newest question of the session that has no answer in its lines."""
        self._look()
        return self._open_question

    def _look(self) -> None:
        """Look at the lines that have come since the last time."""
        for _, line in self.viewer.lines[self._looked_at :]:
            self._finished.update(result_uuids(line))
            if '"can_use_tool"' in line and line.startswith('{"type":"control_request"'):
                self._open_question = json.loads(line)["request_id"]
            elif self._open_question and self._open_question in line:
                self._open_question = ""
        self._looked_at = len(self.viewer.lines)

    async def _answer(self, request_id: str) -> None:
        await asyncio.sleep(self.dice.random() * self.think_seconds)
        while self.holds_questions:  # noqa: ASYNC110  # no event: the faults set it for many talkers
            await asyncio.sleep(RETRY_SECONDS)
        path = f"/questions/{self.session_id}/{request_id}/answer"
        status, answer = await self.request("POST", path, {"behavior": "allow"})
        # A repeated answer may find the question decided: by the first one.
        assert status in (200, 409, 404), (status, answer)

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Repeat a request, through any gateway, until it has an outcome."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    status, answer = await self.dice.choice(self.gateways).request(method, path, body)
                except (OSError, ValueError):
                    status, answer = 503, None
                if status not in TRANSIENT or (status == 409 and path.endswith("/answer")):
                    return status, answer
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait_for_lines(self, seen: int, prompt: Prompt) -> None:
        try:
            await self.viewer.wait_for(lambda: len(self.viewer.lines) > seen)
        except TimeoutError:
            _, info = await self.request("GET", f"/sessions/{self.session_id}")
            last = self.viewer.lines[-1:]
            text = f"the {prompt.kind} {prompt.uuid} of {self.session_id} does not end; last line: {last}; now: {info}"
            raise AssertionError(text) from None

    def problems(self, final: list[tuple[int, str]]) -> list[str]:
        """What was promised and does not hold. `final`: the lines of the session, read again at the end."""
        found = []
        numbers = [number for number, _ in final]
        if numbers != list(range(1, len(final) + 1)):
            found.append(f"the lines are not numbered from 1 without a gap: {gaps(numbers)} {LOST}")
        if self.viewer.lines != final[: len(self.viewer.lines)]:
            found.append(f"the viewer saw other lines: {first_difference(self.viewer.lines, final)} {LOST}")
        results = Counter(uuid for _, line in final for uuid in result_uuids(line))
        ran = Counter(self.witness.read_text().split() if self.witness.exists() else ())
        for prompt in self.prompts:
            if prompt.is_acknowledged and results[prompt.uuid] != 1:
                kind = DOUBLED if results[prompt.uuid] else LOST
                found.append(f"the {prompt.kind} {prompt.uuid} has {results[prompt.uuid]} results {kind}")
            if ran[prompt.uuid] > 1:
                found.append(f"the command of {prompt.uuid} ran {ran[prompt.uuid]} times {RAN_TWICE}")
            if prompt.kind in ("tool", "slow_tool", "question") and prompt.is_acknowledged and not ran[prompt.uuid]:
                found += self._explain_missing(prompt, final)
        return [f"{self.session_id}: {problem}" for problem in found]

    def _explain_missing(self, prompt: Prompt, final: list[tuple[int, str]]) -> list[str]:
        """A command that did not run must have a result that says so."""
        calls = [block["id"] for _, line in final for block in tool_uses(line) if prompt.uuid in json.dumps(block)]
        errors = {block["tool_use_id"] for _, line in final for block in tool_results(line) if block.get("is_error")}
        missing = [call for call in calls if call not in errors]
        if calls and not missing:
            return []
        return [f"the command of the {prompt.kind} {prompt.uuid} did not run, and nothing says so {LOST}"]


async def start_talkers(
    gateways: list[Server], count: int, folder: Path, dice: Random, think_seconds: float = 0
) -> list[Talker]:
    """New sessions with a user each. Every third asks before it runs a command."""
    made = []
    for at in range(count):
        mode = "default" if at % 3 == 2 else "bypassPermissions"
        session_id = await gateways[0].create(options={"permission_mode": mode})
        witness = folder / f"{session_id}.witness"
        kinds = ("say", "wait", "question") if mode == "default" else KINDS[:-1]
        made.append(Talker(gateways, session_id, witness, Random(dice.random()), kinds, think_seconds))
    return made


async def start_next(talker: Talker) -> Talker:
    """A new session with a user like the one before."""
    mode = "default" if "question" in talker.kinds else "bypassPermissions"
    status, made = await talker.request("POST", "/sessions", {"options": {"permission_mode": mode}})
    assert status == 201, (status, made)
    witness = talker.witness.with_name(f"{made['session_id']}.witness")
    dice = Random(talker.dice.random())
    return Talker(talker.gateways, made["session_id"], witness, dice, talker.kinds, talker.think_seconds)


async def read_all_lines(cluster: RunningCluster, session_id: str) -> list[tuple[int, str]]:
    """The lines of a session from the first to the last one that is in its log now."""
    state = await cluster.read_state(session_id)
    return await read_lines_up_to(cluster.gateways[0], session_id, len(state.lines))


async def read_lines_up_to(gateway: Server, session_id: str, last: int) -> list[tuple[int, str]]:
    """The lines of a session from the first to at least a number."""
    viewer = Viewer(gateway, session_id)
    reading = asyncio.create_task(viewer.run())
    try:
        await viewer.wait_for(lambda: viewer.last >= last)
        return viewer.lines
    except TimeoutError:
        found = await gateway.request("GET", f"/sessions/{session_id}")
        text = f"{session_id} has {last} lines in its log, a viewer got {viewer.last}, over {viewer.cuts} connections"
        end = repr(reading.exception()) if reading.done() else viewer.end
        raise AssertionError(f"{text}; the last one ended with {end}; GET says {found}") from None
    finally:
        reading.cancel()
        viewer.cut()


def result_uuids(line: str) -> list[str]:
    return list(json.loads(line).get("user_message_uuids", [])) if line.startswith('{"type":"result"') else []


def blocks(line: str, role: str, kind: str) -> list[dict[str, Any]]:
    if not line.startswith(f'{{"type":"{role}"'):
        return []
    content = json.loads(line).get("message", {}).get("content", [])
    return [one for one in content if isinstance(one, dict) and one.get("type") == kind]


def tool_uses(line: str) -> list[dict[str, Any]]:
    return blocks(line, "assistant", "tool_use")


def tool_results(line: str) -> list[dict[str, Any]]:
    return blocks(line, "user", "tool_result")


def gaps(numbers: list[int]) -> list[tuple[int, int]]:
    return [(one, other) for one, other in zip([0, *numbers], numbers, strict=False) if other != one + 1][:3]


def first_difference(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> object:
    for left, right in zip(one, other, strict=False):
        if left != right:
            return left[0], left[1][:200], right[0], right[1][:200]
    return f"{len(one)} lines of {len(other)}"
