"""A model server for benchmarks: the Messages API on loopback, with replies rendered in advance.

    python bench/model_server.py        # writes its port on one line, serves until its stdin closes

It runs in its own process, so that it shares no interpreter lock with the benchmark. The last mark in the request
selects the reply: the text `prompt(20_000)` anywhere in the newest user message requests one message of 20,000 text
deltas. Without a mark the reply is one short text. The request is searched as bytes and not parsed, so that a long one
takes almost no time. A streamed reply has one HTTP chunk per event, like the API, but is sent in one write.

It has no scripted tool calls, errors or delays; `parley.testing.model_server` has.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import socketserver
import sys
import threading
from collections.abc import Iterator
from typing import Any

MARK = re.compile(rb"bench-reply:(\d+)")
MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]+)"')
STREAMED = re.compile(rb'"stream"\s*:\s*true')
BLANK_ID = b"msg_" + b"0" * 20
NUMBERS = itertools.count(1)

Event = dict[str, Any]


def prompt(deltas: int) -> str:
    """The text that requests a reply of this many text deltas."""
    return f"bench-reply:{deltas}"


def requested_deltas(body: bytes) -> int:
    """The last mark is the newest one, wherever `messages` is among the keys."""
    at = body.rfind(b"bench-reply:")
    mark = MARK.match(body, at) if at >= 0 else None
    return int(mark[1]) if mark else 1


def message(model: str, text: str, output_tokens: int) -> Event:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    whole = {"id": BLANK_ID.decode(), "type": "message", "role": "assistant", "model": model}
    ending = {"stop_reason": "end_turn", "stop_sequence": None, "usage": {**usage, "output_tokens": output_tokens}}
    return {**whole, "content": [{"type": "text", "text": text}], **ending}


def events(whole: Event, pieces: list[str]) -> Iterator[Event]:
    """The events of a message with one text block."""
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in pieces:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": whole["usage"]}
    yield {"type": "message_stop"}


def chunk(event: Event) -> bytes:
    text = f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(text), text)


@functools.cache
def message_reply(model: str, deltas: int, streamed: bool) -> bytes:
    """A complete HTTP reply with the blank message id."""
    pieces = ["Hello there."] if deltas == 1 else ["word "] * deltas
    whole = message(model, "".join(pieces), len(pieces))
    if not streamed:
        return json_reply(whole)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(map(chunk, events(whole, pieces))) + b"0\r\n\r\n"


def json_reply(value: Event, status: str = "200 OK") -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def reply(method: str, target: str, body: bytes, number: int) -> bytes:
    """Answer a request. `number` makes the message id unique, because engines merge messages with the same id."""
    path = target.partition("?")[0]
    if method == "POST" and path == "/v1/messages/count_tokens":
        return json_reply({"input_tokens": max(1, len(body) // 4)})
    if method == "POST" and path == "/v1/messages":
        model = MODEL.search(body)
        name = model[1].decode() if model else "unknown"
        rendered = message_reply(name, requested_deltas(body), STREAMED.search(body) is not None)
        return rendered.replace(BLANK_ID, b"msg_%020d" % number, 1)
    error = {"type": "error", "error": {"type": "not_found_error", "message": f"not found: {path}"}}
    refusal = json_reply(error, "404 Not Found")
    return refusal.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else refusal


class Exchange(socketserver.StreamRequestHandler):
    """One connection: requests are answered one after the other until the client disconnects."""

    disable_nagle_algorithm = True
    rbufsize = 1 << 20

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while opening := self.rfile.readline():
                method, target, _ = opening.decode("latin-1").split()
                body = self.rfile.read(self.body_bytes())
                self.request.sendall(reply(method, target, body, next(NUMBERS)))

    def body_bytes(self) -> int:
        """Read the headers and return the length of the body."""
        length = 0
        while (header := self.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return length


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    server = Server(("127.0.0.1", 0), Exchange)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
