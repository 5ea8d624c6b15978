"""Random requests and frames: the server answers each with a documented error or a success, and keeps working.

    python -m tests.stress.gateway.fuzz --count 100000 --seed 1

Half of them are HTTP requests: random methods, paths, headers and bodies, also broken ones. The others are frames on
sockets: random bytes, broken JSON, lines of every type with wrong fields, and lines that are right. The exit code is 0
if no reply has the status 500, nothing is written to stderr, no token is shown, a session that was there before still
answers, and the server has no more open files and not much more memory than after the first tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import websockets

from tests.helpers.gateway import Server

METHODS = ("GET", "GET", "GET", "POST", "POST", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW")
WORDS = ("", "a", "0", "-1", "SESSION", "..", "%2e%2e", "%00", "ü", "null", "events", "ws", "answer", "x" * 300)
ROUTES = (
    *("/sessions", "/sessions/SESSION", "/sessions/SESSION/prompts", "/sessions/SESSION/control", "/ws"),
    *("/sessions/SESSION/events", "/questions", "/questions/events", "/questions/SESSION/QUESTION/answer"),
    *("/questions/SESSION/QUESTION/delegate", "/tokens", "/tokens/QUESTION", "/healthz", "/readyz", "/metrics"),
    *("/sessions/SMALL/fork", "/openapi.json", "/asyncapi.json"),
    *("/v1/code/sessions/SESSION/events", "/v1/code/sessions/SESSION/events/stream", "/sessions/SESSION/ws"),
)
TYPES = (
    *("user", "control_request", "control_response", "control_cancel_request", "keep_alive", "system", "result"),
    *("update_environment_variables", "gateway", "auth", "", "assistant", "stream_event"),
)
SUBTYPES = (
    *("initialize", "interrupt", "set_model", "set_permission_mode", "mcp_message", "get_settings", "mcp_status"),
    *("rewind_files", "apply_flag_settings", "success", "error", "can_use_tool", "no_such_subtype"),
)


BATCH = 100
"""How many requests are sent at a time; some wait for half a second."""
MORE_FILES = 100
MORE_MEGABYTES = 150


class Fuzzer:
    def __init__(self, server: Server, session: str, small: str, dice: Random) -> None:
        """`small`: a session that stays short, because it is copied."""
        self._server = server
        self._session = session
        self._small = small
        self._dice = dice
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []

    def value(self, depth: int = 0) -> Any:
        """A random JSON value."""
        dice = self._dice
        kind = dice.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return dice.choice([None, True, False, 0, -1, 1e308, 2**63, 0.5])
        if kind <= 4:
            return dice.choice([*WORDS, *TYPES, *SUBTYPES, "\ud800", "\u0000", "say Hi."])
        if kind == 5:
            return [self.value(depth + 1) for _ in range(dice.randrange(4))]
        keys = [
            "type",
            "subtype",
            "request",
            "request_id",
            "response",
            "message",
            "content",
            "uuid",
            "behavior",
            "mode",
        ]
        return {dice.choice([*keys, "x"]): self.value(depth + 1) for _ in range(dice.randrange(5))}

    def line(self) -> str:
        """A line that looks like one of the protocol."""
        dice = self._dice
        line: dict[str, Any] = {"type": dice.choice(TYPES)}
        if dice.random() < 0.7:
            line["request_id"] = self.value(2)
            line["request"] = {"subtype": dice.choice(SUBTYPES), dice.choice(["mode", "hooks", "x"]): self.value(1)}
        if dice.random() < 0.5:
            line["response"] = {
                "subtype": dice.choice(SUBTYPES),
                "request_id": self.value(2),
                "response": self.value(1),
            }
        if dice.random() < 0.5:
            line["message"] = {"role": "user", "content": dice.choice(["say Hi.", self.value(1)])}
        if dice.random() < 0.2:
            line[dice.choice(["uuid", "session_id", "subtype", "x"])] = self.value(1)
        return json.dumps(line)

    def frame(self) -> str | bytes:
        dice = self._dice
        kind = dice.randrange(6)
        if kind == 0:
            return dice.randbytes(dice.randrange(200))
        if kind == 1:
            return self.line()[: dice.randrange(1, 60)] + "\n"
        if kind == 2:
            return "\n".join(self.line() for _ in range(dice.randrange(4)))
        if kind == 3:
            return "[" * dice.randrange(3000) + "\n"
        return self.line() + "\n"

    def request(self) -> bytes:
        """An HTTP request, mostly well formed."""
        dice = self._dice
        if dice.random() < 0.7:
            path = dice.choice(ROUTES).replace("QUESTION", dice.choice(WORDS))
        else:
            path = "/" + "/".join(dice.choice([*ROUTES, *WORDS]).strip("/") for _ in range(dice.randrange(1, 4)))
        path = path.replace("SESSION", self._session).replace("SMALL", self._small)
        if dice.random() < 0.3:
            path += "?" + dice.choice(["after", "session", "cwd", "numbered", "x"]) + "=" + dice.choice(WORDS)
        token = dice.choice([self._server.token, self._server.token, "wrong", ""])
        body = json.dumps(self.value()).encode() if dice.random() < 0.8 else dice.randbytes(dice.randrange(100))
        length = len(body) if dice.random() < 0.95 else dice.choice([0, len(body) + 5, -1])
        headers = [
            f"Host: {dice.choice(['localhost', 'localhost', '127.0.0.1', 'evil.example', ''])}",
            f"Content-Length: {length}",
        ]
        headers += [f"Authorization: Bearer {token}"] if token else []
        headers += [f"Origin: {dice.choice(['http://localhost', 'http://evil.example', 'null', ''])}"] * (
            dice.random() < 0.2
        )
        headers += [f"Last-Event-ID: {dice.choice(WORDS)}"] * (dice.random() < 0.1)
        head = f"{dice.choice(METHODS)} {path} HTTP/1.1\r\n" + "\r\n".join(headers) + "\r\nConnection: close\r\n\r\n"
        data = head.encode(errors="replace") + body
        return data if dice.random() < 0.95 else data[: dice.randrange(len(data))]

    async def send_request(self) -> None:
        data = self.request()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        writer.write(data)
        try:
            async with asyncio.timeout(0.5):
                answer = await reader.read(65536)
        except (TimeoutError, ConnectionError):  # an event stream, or a request that is not complete
            answer = b""
        writer.close()
        status = answer.split(b" ")[1].decode() if answer.startswith(b"HTTP/") else "none"
        self.outcomes[f"HTTP {status}"] += 1
        if status == "500" or self._server.token.encode() in answer:
            self.problems.append(f"{data[:300]!r} was answered with {answer[:300]!r}")

    async def send_frames(self, count: int) -> None:
        """Send frames on one socket, while it lasts."""
        session = self._session
        path = f"/sessions/{session}/ws" + self._dice.choice(["", "?numbered=1&after=0"])
        try:
            async with await self._server.connect(path) as socket:
                reading = asyncio.create_task(self._read(socket))
                try:
                    for _ in range(count):
                        await socket.send(self.frame())
                        self.outcomes["frame"] += 1
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                    socket.transport.abort()  # an orderly end would wait for all that it did not read
        except websockets.WebSocketException as exc:
            self.outcomes[f"socket {type(exc).__name__}"] += 1
            if self._session == session:
                await self._renew(session)

    async def _renew(self, session: str) -> None:
        """Make another session if a request has deleted it."""
        status, _ = await self._server.request("GET", f"/sessions/{session}")
        if status == 404 and self._session == session:
            self._session = await self._server.create()
            self.outcomes["session deleted"] += 1

    async def _read(self, socket: Any) -> None:
        async for frame in socket:
            if self._server.token in frame:
                self.problems.append(f"a frame shows the token: {frame[:300]!r}")


async def run(folder: Path, count: int, seed: int) -> list[str]:
    dice = Random(seed)
    async with Server(folder, "--model", "offline", "--idle-seconds", "2") as server:
        session = await server.create()
        small = await server.create()
        await server.ask(small, "say Small.")
        fuzzer, sent, before = Fuzzer(server, session, small, dice), 0, (0, 0)
        assert server.process is not None
        while sent < count:
            if not before[0] and sent >= count // 10:
                before = measure(server.process.pid)
            batch = [fuzzer.send_request() for _ in range(BATCH)]
            batch += [fuzzer.send_frames(20) for _ in range(BATCH // 20)]
            await asyncio.gather(*batch)
            sent += 2 * BATCH
            if sent % (20 * BATCH) == 0:
                status, _ = await server.request("GET", "/healthz")
                if status != 200:
                    fuzzer.problems.append(f"/healthz answers {status} after {sent} inputs")
        other = await server.create()
        await server.request("POST", f"/sessions/{other}/prompts", {"content": "say Still here."})
        status, info = await server.request("GET", f"/sessions/{other}")
        if status != 200 or info["last_line"] is None:
            fuzzer.problems.append(f"a new session answers {status} {info}")
        fuzzer.problems += await compare(server.process.pid, before)
        said = [line for line in server.stderr if not line.startswith(("created the token file", "listening"))]
        fuzzer.problems += ["".join(said[-20:])] if said else []
        report(f"{sent} inputs: {dict(fuzzer.outcomes.most_common())}")
        return fuzzer.problems


def measure(pid: int) -> tuple[int, int]:
    """The open files and the memory of a process, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGE_SIZE") >> 20


async def compare(pid: int, before: tuple[int, int]) -> list[str]:
    """What the process keeps that it should not. Sessions that were created meanwhile have files and memory."""
    for _ in range(100):
        if measure(pid)[0] <= before[0] + MORE_FILES:
            break
        await asyncio.sleep(0.1)
    files, megabytes = measure(pid)
    report(
        f"open files: {before[0]} early, {files} at the end; memory: {before[1]} MB early, {megabytes} MB at the end"
    )
    problems = [f"{files - before[0]} files stay open"] if files > before[0] + MORE_FILES else []
    return problems + ([f"{megabytes} MB"] if megabytes > before[1] + MORE_MEGABYTES else [])


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = asyncio.run(run(Path(folder), given.count, given.seed))
    for problem in (*problems[:30], f"{len(problems)} problems"):
        report(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
