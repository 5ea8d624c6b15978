"""A model server for benchmarks: the APIs of the backends on loopback, with replies rendered in advance.

    python bench/model_server.py              # writes its port on one line, serves until its stdin closes
    python bench/model_server.py server.pem   # over TLS, with the key and the certificate in this file
    python bench/model_server.py --many       # for many connections at once

It runs in its own process, so that it shares no interpreter lock with the benchmark. The last mark in the request
selects the reply: the text `prompt(20_000)` anywhere in the newest user message requests one message of 20,000 text
deltas, `read_prompt("a.txt")` a call of Read and, after its result, one short text. Without a mark the reply is one
short text. The request is searched as bytes and not parsed, so that a long one takes almost no time. A streamed reply
has one HTTP chunk per event, like the API, but is sent in one write. `GET /bench/bytes` returns the length of the
newest request.

Each connection has a thread, which answers sooner than an event loop. With many of them, threads that wait for the
interpreter lock take processor time from the engines, so `--many` uses an event loop.

It has no scripted errors or delays; `parley.testing.model_server` has.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import re
import socketserver
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

MARK = re.compile(rb"bench-(reply|read):([^\s\"\\]+)")
RESULTS = (b'"tool_result"', b'"role":"tool"', b'"function_call_output"')
"""What a request has after a mark if the requested call was run."""
MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]+)"')
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r")
STREAM = b'"stream":'
BLANK_ID = b"msg_" + b"0" * 20
BLANK_CALL_ID = b"call_" + b"0" * 20
MESSAGES = "/v1/messages"
PATHS = (MESSAGES, "/v1/chat/completions", "/v1/responses")
NUMBERS = itertools.count(1)

Event = dict[str, Any]


def prompt(deltas: int) -> str:
    """The text that requests a reply of this many text deltas."""
    return f"bench-reply:{deltas}"


def read_prompt(path: str) -> str:
    """The text that requests a call of Read with this path."""
    return f"bench-read:{path}"


def requested_block(body: bytes | bytearray) -> tuple[Event, list[str]]:
    """The block of the reply, and the pieces it arrives in.

    The last mark is the newest one, wherever the conversation is among the keys.
    """
    mark = MARK.match(body, max(body.rfind(b"bench-re"), 0))
    if mark is not None and mark[1] == b"reply" and (deltas := int(mark[2])) > 1:
        return {"type": "text", "text": ""}, ["word "] * deltas
    if mark is not None and mark[1] == b"read" and all(body.find(name, mark.end()) < 0 for name in RESULTS):
        arguments = json.dumps({"file_path": mark[2].decode()})
        return {"type": "tool_use", "id": BLANK_CALL_ID.decode(), "name": "Read", "input": {}}, [arguments]
    return {"type": "text", "text": ""}, ["Hello there."]


def message(model: str, block: Event, pieces: Sequence[str]) -> Event:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    whole = {"id": BLANK_ID.decode(), "type": "message", "role": "assistant", "model": model}
    text = "".join(pieces)
    is_call = block["type"] == "tool_use"
    content = {**block, "input": json.loads(text)} if is_call else {**block, "text": text}
    ending = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    return {**whole, "content": [content], **ending, "usage": {**usage, "output_tokens": len(pieces)}}


def events(whole: Event, block: Event, pieces: Sequence[str]) -> Iterator[Event]:
    """The events of a message with one block."""
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    kind, field = ("input_json_delta", "partial_json") if block["type"] == "tool_use" else ("text_delta", "text")
    for piece in pieces:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: piece}}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": whole["usage"]}
    yield {"type": "message_stop"}


def encode_event(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


def encode_for(path: str, model: str, streamed: list[Event]) -> list[bytes]:
    """The events as another API spells them."""
    from parley.models.base import ModelRequest, read_event
    from parley.testing.messages_api import ApiRequest
    from parley.testing.model_server import FORMATS

    async def source() -> AsyncIterator[Any]:
        for event in streamed:
            yield read_event(json.dumps(event).encode())

    async def collect() -> list[bytes]:
        request = ApiRequest(ModelRequest(model=model, system=[], messages=[], tools=[], max_tokens=1), True, True)
        return [data async for data in FORMATS[path].encode_events(source(), request)]

    return asyncio.run(collect())


@functools.cache
def message_reply(path: str, model: str, block: str, pieces: tuple[str, ...], streamed: bool) -> bytes:
    """A complete HTTP reply with blank ids."""
    opening = json.loads(block)
    whole = message(model, opening, pieces)
    if not streamed:
        return json_reply(whole)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    sent = list(events(whole, opening, pieces))
    texts = [*map(encode_event, sent)] if path == MESSAGES else encode_for(path, model, sent)
    return head + b"".join(b"%x\r\n%b\r\n" % (len(text), text) for text in texts) + b"0\r\n\r\n"


def json_reply(value: Event, status: str = "200 OK") -> bytes:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def reply(method: str, target: str, body: bytes | bytearray, number: int) -> bytes:
    """Answer a request. `number` makes the message id unique, because engines merge messages with the same id."""
    path = target.partition("?")[0]
    if method == "POST" and path == "/v1/messages/count_tokens":
        return json_reply({"input_tokens": max(1, len(body) // 4)})
    if method == "POST" and path in PATHS:
        model = MODEL.search(body)
        name = model[1].decode() if model else "unknown"
        block, pieces = requested_block(body)
        after = body.rfind(STREAM) + len(STREAM)  # near the end of most requests, so it is searched from there
        is_streamed = body[after : after + 5].lstrip().startswith(b"true")
        rendered = message_reply(path, name, json.dumps(block), tuple(pieces), is_streamed)
        if block["type"] == "tool_use":
            rendered = rendered.replace(BLANK_CALL_ID, b"call_%020d" % number)
        return rendered.replace(BLANK_ID, b"msg_%020d" % number, 1)
    error = {"type": "error", "error": {"type": "not_found_error", "message": f"not found: {path}"}}
    refusal = json_reply(error, "404 Not Found")
    return refusal.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else refusal


class Exchange(socketserver.StreamRequestHandler):
    """One connection: requests are answered one after the other until the client disconnects."""

    server: Server
    disable_nagle_algorithm = True
    rbufsize = 1 << 20

    def handle(self) -> None:
        self.body = bytearray()
        """The last request. It is used again, because to allocate a long one takes longer than to read it."""
        with contextlib.suppress(OSError):
            while opening := self.rfile.readline():
                method, target, _ = opening.decode("latin-1").split()
                if target == "/bench/bytes":
                    self.body_bytes()
                    self.request.sendall(json_reply({"bytes": self.server.newest_bytes}))
                    continue
                self.read_body(self.body_bytes())
                self.server.newest_bytes = len(self.body)
                self.request.sendall(reply(method, target, self.body, next(NUMBERS)))

    def read_body(self, length: int) -> None:
        self.body.extend(bytes(max(0, length - len(self.body))))
        del self.body[length:]
        with memoryview(self.body) as view:
            self.rfile.readinto(view)

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
    newest_bytes = 0


class Connection(asyncio.BufferedProtocol):
    """The same on an event loop."""

    newest_bytes = 0
    """The length of the newest request, on any connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = bytearray(1 << 16)
        self._end = 0
        """Where the next bytes go."""
        self._wanted = 0
        """Where the request ends; 0 if its head is not complete."""

    def get_buffer(self, sizehint: int) -> memoryview:
        room = max(self._wanted, self._end + (1 << 16))
        if len(self._buffer) < room:
            self._buffer += bytes(room - len(self._buffer))
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        while self._end >= self._wanted:
            end = self._buffer.find(b"\r\n\r\n", 0, self._end) + 4
            if end < 4:
                return
            head = bytes(self._buffer[:end])
            length = LENGTH.search(head)
            self._wanted = end + (int(length[1]) if length else 0)
            if self._end < self._wanted:
                return
            self._transport.write(self._reply(head, bytes(memoryview(self._buffer)[end : self._wanted])))
            more = self._buffer[self._wanted : self._end]
            self._buffer[: len(more)] = more
            self._end, self._wanted = len(more), 0
            if not more:
                return

    def _reply(self, head: bytes, body: bytes) -> bytes:
        method, target, _ = head.partition(b"\r\n")[0].decode("latin-1").split()
        if target == "/bench/bytes":
            return json_reply({"bytes": Connection.newest_bytes})
        Connection.newest_bytes = len(body)
        return reply(method, target, body, next(NUMBERS))


async def serve_many() -> None:
    """Serve until stdin closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    announce(server.sockets[0].getsockname()[1])
    await loop.run_in_executor(None, sys.stdin.read)


def announce(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def main() -> None:
    if sys.argv[1:] == ["--many"]:
        asyncio.run(serve_many())
        return
    server = Server(("127.0.0.1", 0), Exchange)
    if sys.argv[1:]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[1])
        # The handshake is left to the first read, in the thread of the connection.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    announce(server.server_address[1])
    sys.stdin.read()


if __name__ == "__main__":
    main()
