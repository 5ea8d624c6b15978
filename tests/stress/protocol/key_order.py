"""Send any line of the corpus with its keys shuffled: it is routed and answered the same.

    python -m tests.stress.protocol.key_order --count 400 --seed 1

Over stdio, over a gateway and over a cluster, from a client that shuffles to an engine that shuffles (a dialect of a
package). First a talk with a hook, a question and requests, then lines of the corpus, each in a session of its own,
followed by a prompt. What the client gets must be what a client and an engine that shuffle nothing say to each other.
The run depends only on the seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from websockets.exceptions import ConnectionClosed

from parley.gateway.engines import STREAM
from parley.local_engine import LocalEngine
from parley.transports.base import create_pair
from tests.helpers import paths
from tests.helpers.cluster import local_cluster
from tests.helpers.environment import base_environment
from tests.helpers.gateway import Server
from tests.helpers.golden import LINES, canonical, write_otherwise
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.shuffled import NAME, shuffled_engines

Line = dict[str, Any]
Comparable = list[Any]
CORPUS: list[Line] = [
    *(sample.json for sample in LINES),
    *(
        json.loads(line)
        for tape in sorted((paths.DATA / "streams").glob("*.ndjson"))
        for line in tape.read_text(encoding="utf-8").splitlines()
    ),
]
OPTIONS = ("--model", "offline", "--include-partial-messages")
HOOKS = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["h1"]}]}
TOUCH = 'call Bash {"command": "touch made", "description": "Make a file"}\nsay Done.'
PROMPT, FENCE = (f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "56")
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REQUESTS = ("interrupt", "set_model", "mcp_status", "get_settings", "no_such_request")


class Client:
    """A client of a session: what it sends, and all lines that it gets."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], order: Random | None) -> None:
        """`order`: how its lines are shuffled; None for not at all."""
        self.lines: list[Line] = []
        self.has_ended = False
        self._write = send
        self._order = order
        self._read = 0
        self._came = asyncio.Event()

    def take(self, line: Line) -> None:
        self.lines.append(line)
        self._came.set()

    def end(self) -> None:
        self.has_ended = True
        self._came.set()

    async def send(self, line: Line) -> None:
        compact = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
        with suppress(ConnectionClosed, BrokenPipeError):
            await self._write(compact if self._order is None else write_otherwise(line, self._order))

    async def receive(self, wanted: Callable[[Line], bool]) -> Line | None:
        """The next such line; None if the session ends before."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                while self._read < len(self.lines):
                    self._read += 1
                    if wanted(self.lines[self._read - 1]):
                        return self.lines[self._read - 1]
                if self.has_ended:
                    return None
                self._came.clear()
                await self._came.wait()

    async def prompt(self, uuid: str, text: str) -> None:
        await self.send({"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}})

    async def request(self, request_id: str, **fields: Any) -> None:
        await self.send({"type": "control_request", "request_id": request_id, "request": fields})
        await self.find_reply(request_id)

    async def find_reply(self, request_id: Any) -> None:
        """Wait until a request is answered."""
        self._read = 0
        await self.receive(lambda line: line.get("response", {}).get("request_id") == request_id)

    async def answer_until(self, is_last: Callable[[Line], bool], decision: Line) -> None:
        """Answer the requests of the engine until a line comes: hooks with nothing, questions with a decision."""
        while (line := await self.receive(lambda line: line["type"] == "control_request" or is_last(line))) is not None:
            if line["type"] != "control_request":
                return
            given = decision if line["request"]["subtype"] == "can_use_tool" else {}
            reply = {"subtype": "success", "request_id": line["request_id"], "response": given}
            await self.send({"type": "control_response", "response": reply})


Connect = Callable[[Random | None], AbstractAsyncContextManager[Client]]
"""Opens a new session. Its client and its engine shuffle, or neither."""


@asynccontextmanager
async def over_stdio(folder: Path, environment: dict[str, str]) -> AsyncIterator[Connect]:
    @asynccontextmanager
    async def connect(order: Random | None) -> AsyncIterator[Client]:
        ours, theirs = create_pair()

        async def send(line: bytes) -> None:
            ours.write(line + b"\n")

        async def read() -> None:
            rest = b""
            async for chunk in ours.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    client.take(json.loads(line))
            client.end()

        async def serve() -> None:
            await engine.run(theirs)
            theirs.close()

        client = Client(send, order)
        home = tempfile.mkdtemp(dir=folder)
        options = (*STREAM, "--permission-prompt-tool", "stdio", *OPTIONS, *dialect(order))
        engine = LocalEngine(options, home, {**base_environment(), **environment, "HOME": home})
        serving, reading = asyncio.create_task(serve()), asyncio.create_task(read())
        yield client
        ours.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(serving, reading)

    yield connect


def dialect(order: Random | None) -> tuple[str, ...]:
    return () if order is None else ("--dialect", NAME)


@asynccontextmanager
async def over_gateway(folder: Path, environment: dict[str, str]) -> AsyncIterator[Connect]:
    async with Server(folder, *OPTIONS, environment={**environment, "IS_SANDBOX": "1"}) as server:
        yield sockets_of(server)


@asynccontextmanager
async def over_cluster(folder: Path, environment: dict[str, str]) -> AsyncIterator[Connect]:
    async with local_cluster(folder, *OPTIONS, hosts=1) as (_, server):
        yield sockets_of(server)


def sockets_of(server: Server) -> Connect:
    @asynccontextmanager
    async def connect(order: Random | None) -> AsyncIterator[Client]:
        cwd = tempfile.mkdtemp(dir=server.root)
        session = await server.create(cwd=cwd, options={"args": list(dialect(order))} if order is not None else {})

        async def send(line: bytes) -> None:
            await socket.send(line.decode() + "\n")

        async def read() -> None:
            with suppress(ConnectionClosed):
                async for frame in socket:
                    for line in filter(None, str(frame).split("\n")):
                        client.take(json.loads(line))
            client.end()

        socket = await server.connect(f"/sessions/{session}/ws")
        client = Client(send, order)
        reading = asyncio.create_task(read())
        yield client
        await socket.close()
        await reading

    return connect


WAYS = {"stdio": over_stdio, "gateway": over_gateway, "cluster": over_cluster}


async def talk(client: Client) -> None:
    """A session with a hook, a question whose answer changes the call, and requests."""
    await client.request("i1", subtype="initialize", hooks=HOOKS)
    await client.prompt(PROMPT, TOUCH)
    changed = {"command": "touch other", "description": "Make a file"}
    await client.answer_until(is_result, {"behavior": "allow", "updatedInput": changed})
    for subtype in REQUESTS:
        await client.request(subtype, subtype=subtype)


def is_result(line: Line) -> bool:
    return str(line["type"]) == "result"


def saying(given: Line) -> Callable[[Client], Awaitable[None]]:
    async def say(client: Client) -> None:
        """Say one line, and then a prompt, by whose result the line is answered, or it is a request."""
        await client.send(given)
        await client.prompt(FENCE, "say Here.")
        denial = {"behavior": "deny", "message": "no"}
        await client.answer_until(lambda line: is_result(line) and FENCE in line.get("user_message_uuids", ()), denial)
        if given.get("type") == "control_request":
            await client.find_reply(given["request_id"])

    return say


def comparable(lines: list[Line]) -> Comparable:
    """What a client was told: how each request was answered, which prompts ran, and what went wrong.

    Two prompts run in one turn or in two, so each result counts once.
    """
    told: Comparable = []
    for line in lines:
        response = line.get("response", {})
        match line["type"]:
            case "control_response":
                error = ID.sub("ID", str(response.get("error")))
                told.append(["response", response.get("request_id"), response["subtype"], error])
            case "control_request":
                asked = line["request"].get("input", {})
                about = asked.get("tool_input", asked.get("hook_event_name", asked))
                told.append(["request", line["request"]["subtype"], about])
            case "result":
                told += [["ran", uuid] for uuid in line.get("user_message_uuids", ()) if uuid in (PROMPT, FENCE)]
                told.append(["result", line["subtype"], line["is_error"]])
            case "gateway" | "error":
                told.append([line["type"], line.get("code"), line.get("error"), line.get("message")])
    return [json.loads(each) for each in sorted(set(map(canonical, told)))]


async def compare(
    connect: Connect, play: Callable[[Client], Awaitable[None]], order: Random
) -> tuple[Comparable, Comparable]:
    """What a client is told, without and with shuffling."""
    found = []
    for each in (None, order):
        async with connect(each) as client:
            await play(client)
        found.append(comparable(client.lines))
    return found[0], found[1]


async def run(way: str, count: int, seed: int) -> list[str]:
    """What was not answered the same."""
    order, wrong = Random(f"{seed} {way}"), list[str]()
    chosen = order.sample(CORPUS, min(count, len(CORPUS)))
    plays: list[tuple[str, Callable[[Client], Awaitable[None]]]] = [("the talk", talk)]
    plays += [(json.dumps(line), saying(line)) for line in chosen]
    with tempfile.TemporaryDirectory(prefix="parley-keys-") as name:
        folder = Path(name)
        with shuffled_engines(folder) as environment:
            async with WAYS[way](folder, environment) as connect:
                for label, play in plays:
                    expected, found = await compare(connect, play, order)
                    if found != expected:
                        wrong.append(f"{label}:\n  {expected}\n  {found}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=len(CORPUS), help="how many lines, for each way")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    failed = False
    for way in WAYS:
        wrong = asyncio.run(run(way, chosen.count, chosen.seed))
        failed |= bool(wrong)
        sys.stdout.write(f"{way}: {min(chosen.count, len(CORPUS))} lines, {len(wrong)} answered otherwise\n")
        sys.stdout.write("".join(f"{each}\n" for each in wrong))
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    os.environ.setdefault("IS_SANDBOX", "1")
    sys.exit(main())
