"""Measure the interactive terminal: the first prompt, a fast stream, a long session, an idle session.

    python bench/terminal.py                                  # all measurements
    python bench/terminal.py --runs 3 --seconds 2 --only start,stream

The executable runs on a pseudo-terminal of 120 x 40 cells. A time starts before the spawn and ends when our read
returns the bytes. Each figure is printed beside its aim:

    start     until the prompt is on the screen
    stream    a model server on loopback sends `--rate` tokens a second, each with a number. The lag of a token is the
              time from its write to the server's socket until it is on the screen; at the end it must not be larger
              than a few frames. Then the server sends as many tokens at full speed.
    resume    a session of `--messages` messages: until its last message is on the screen, and until a prompt that is
              typed then is answered by the offline model
    idle      processor time of the terminal and its engine while nothing happens, after an answer

On a busy machine the times are those of the machine: the processor time ("cpu") says more. Linux only.
"""

from __future__ import annotations

import argparse
import bisect
import fcntl
import http.server
import json
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from long_sessions import SESSION, TEXT, message, open_store

COLUMNS, ROWS = 120, 40
PATIENCE_SECONDS = 120
PARLEY = str(Path(sys.executable).with_name("parley"))
START = 'exec "$@" <"$TTY" >"$TTY" 2>&1'
"""The first terminal that the leader of a session opens becomes its own."""
READY = b"Type a prompt"
TOKEN = re.compile(rb"w(\d{6})")
SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*\x07")
TOKENS_PER_EVENT = 10
TOKENS_PER_PARAGRAPH = 60
AIMS = {
    "first prompt, ms": 350.0,
    "lag of the last token, ms": 250.0,
    "tokens a second at full speed": 5000.0,
    "last message of the session, s": 2.0,
    "idle processor time, % of a core": 0.0,
}
"""What the figures are compared with. Of tokens, more is better."""
FULL_SPEED = 1e9
TICKS = os.sysconf("SC_CLK_TCK")


class Terminal:
    """The executable on a pseudo-terminal."""

    def __init__(self, folder: Path, *argv: str, **variables: str) -> None:
        self._folder, self._argv = folder, argv
        self._environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "IS_SANDBOX": "1",
            **variables,
        }
        self.written = b""

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.started_at = time.perf_counter()
        self.process = subprocess.Popen(
            ["sh", "-c", START, "sh", PARLEY, *self._argv],
            cwd=self._folder,
            env={**self._environment, "TTY": os.ttyname(slave)},
            start_new_session=True,
        )
        self._slave = slave
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def chunks(self) -> Iterator[bytes]:
        """What is written, as it arrives."""
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while select.select([self._master], [], [], max(0, deadline - time.perf_counter()))[0]:
            data = os.read(self._master, 1 << 16)
            self.written += data
            yield data
        raise TimeoutError(f"nothing was written for {PATIENCE_SECONDS} s after {self.written[-300:]!r}")

    def wait_for(self, text: bytes) -> float:
        """Seconds since the start when the text is on the screen."""
        start = len(self.written)
        for _ in self.chunks():
            if text in SEQUENCE.sub(b"", self.written[max(0, start - 200) :]):
                break
        return time.perf_counter() - self.started_at

    def drain(self, seconds: float) -> None:
        """Read and forget for this long."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self._master], [], [], left)[0]:
                self.written += os.read(self._master, 1 << 16)

    def cpu_seconds(self) -> float:
        """Of the process and its children that live."""
        return sum(read_cpu_seconds(pid) for pid in list_tree(self.process.pid))


def list_tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in list_tree(int(child)))]


def read_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class TokenServer(http.server.ThreadingHTTPServer):
    """A server of the Messages API that streams numbered tokens at a rate, and knows when it has sent each."""

    daemon_threads = True

    def __init__(self, rate: float, tokens: int) -> None:
        super().__init__(("127.0.0.1", 0), TokenHandler)
        self.rate, self.tokens = rate, tokens
        self.sent: list[tuple[int, float]] = []
        """The number of the last token of each event, and when it was sent."""


class TokenHandler(http.server.BaseHTTPRequestHandler):
    server: TokenServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        start: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
        }
        usage = {"input_tokens": 10, "output_tokens": 1}
        self._send({"type": "message_start", "message": {**start, "content": [], "usage": usage}})
        self._send({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        began = time.perf_counter()
        for first in range(0, self.server.tokens, TOKENS_PER_EVENT):
            numbers = range(first, min(first + TOKENS_PER_EVENT, self.server.tokens))
            text = "".join(format_token(number) for number in numbers)
            time.sleep(max(0.0, began + numbers[-1] / self.server.rate - time.perf_counter()))
            self._send({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
            self.server.sent.append((numbers[-1], time.perf_counter()))
        self._send({"type": "content_block_stop", "index": 0})
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        self._send({"type": "message_delta", "delta": delta, "usage": {"output_tokens": self.server.tokens}})
        self._send({"type": "message_stop"})

    def _send(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def format_token(number: int) -> str:
    is_end = number % TOKENS_PER_PARAGRAPH == TOKENS_PER_PARAGRAPH - 1
    return f"w{number:06d}" + (".\n\n" if is_end else " ")


def measure_start(folder: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    times, cpu = [], []
    for _ in range(given.runs + 1):
        with Terminal(folder, "--model", "offline") as terminal:
            times.append(1000 * terminal.wait_for(READY))
            cpu.append(1000 * read_cpu_seconds(terminal.process.pid))
    return {"first prompt, ms": times[1:], "cpu until then, ms": cpu[1:]}  # the first run fills the caches


def measure_stream(folder: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(given.runs):
        tokens = round(given.rate * given.seconds)
        speed, _ = stream_once(folder, FULL_SPEED, tokens)
        for name, value in {
            **stream_once(folder, given.rate, tokens)[1],
            "tokens a second at full speed": speed,
        }.items():
            found.setdefault(name, []).append(value)
    return found


def stream_once(folder: Path, rate: float, tokens: int) -> tuple[float, dict[str, float]]:
    """The tokens per second from the first write to the last read, and the lags."""
    server = TokenServer(rate, tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    variables = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}", "ANTHROPIC_API_KEY": "bench"}
    shown: list[tuple[int, float]] = []
    """The highest token on the screen, and when it was read."""
    with Terminal(folder, "--model", "claude-opus-5-5", **variables) as terminal:
        terminal.wait_for(READY)
        terminal.drain(1.0)  # until the engine is ready
        before = terminal.cpu_seconds()
        terminal.type("go\r")
        rest = b""
        for data in terminal.chunks():
            rest = SEQUENCE.sub(b"", rest[-64:] + data)
            highest = max((int(number) for number in TOKEN.findall(rest)), default=-1)
            if highest > (shown[-1][0] if shown else -1):
                shown.append((highest, time.perf_counter()))
                if highest == tokens - 1:
                    break
        cpu = terminal.cpu_seconds() - before
    server.shutdown()
    lags = [1000 * (find_shown(shown, number) - at) for number, at in server.sent]
    return tokens / (shown[-1][1] - server.sent[0][1]), {
        "lag of the median token, ms": statistics.median(lags),
        "lag of the last token, ms": lags[-1],
        "largest lag, ms": max(lags),
        "cpu, s per s of stream": cpu / (tokens / rate),
    }


def find_shown(shown: list[tuple[int, float]], number: int) -> float:
    return shown[bisect.bisect_left(shown, (number, 0.0))][1]


def measure_resume(folder: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    log = open_store("claude", folder).create(SESSION)
    for seq in range(given.messages):
        log.append(message(seq, SESSION))
    log.close()
    last, answered, cpu = [], [], []
    for number in range(given.runs):
        before = given.messages - 1 if number == 0 else None
        with Terminal(folder, "--model", "offline", "--resume", SESSION) as terminal:
            seen = f"{before}: {TEXT.split(',')[0]}".encode() if before is not None else f"answer {number - 1}".encode()
            last.append(terminal.wait_for(seen))
            cpu.append(terminal.cpu_seconds())
            terminal.type(f"say answer {number}\r")
            answered.append(terminal.wait_for(f"\nanswer {number}".encode()) - last[-1])
            terminal.type("/exit\r")
            terminal.process.wait(PATIENCE_SECONDS)
    return {"last message of the session, s": last, "cpu until then, s": cpu, "first answer after that, s": answered}


def measure_idle(folder: Path, given: argparse.Namespace) -> dict[str, list[float]]:
    with Terminal(folder, "--model", "offline") as terminal:
        terminal.wait_for(READY)
        terminal.drain(1.0)
        terminal.type("say Hello\r")
        terminal.wait_for(b"Hello")
        terminal.drain(2.0)
        before = terminal.cpu_seconds()
        terminal.drain(given.idle_seconds)
        used = terminal.cpu_seconds() - before
    return {"idle processor time, % of a core": [100 * used / given.idle_seconds]}


MEASUREMENTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, list[float]]]] = {
    "start": measure_start,
    "stream": measure_stream,
    "resume": measure_resume,
    "idle": measure_idle,
}


def format_row(name: str, values: list[float]) -> str:
    middle, aim = statistics.median(values), AIMS.get(name)
    spread = "" if len(values) == 1 else f"  ({min(values):.4g} to {max(values):.4g})"
    if aim is None:
        return f"{name:36} {middle:9.4g}{spread}"
    is_met = middle >= 0.98 * aim if name.startswith("tokens") else middle <= max(aim, 0.1)
    return f"{name:36} {middle:9.4g}  aim {aim:g}: {'met' if is_met else 'missed'}{spread}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=5000, help="tokens a second of the stream")
    parser.add_argument("--seconds", type=float, default=4, help="how long the stream lasts")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--idle-seconds", type=float, default=10)
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="a list of measurements")
    given = parser.parse_args()
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found = MEASUREMENTS[name](Path(folder), given)
        for row, values in found.items():
            sys.stdout.write(f"{format_row(row, values)}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
