"""The SDK on something that is not a gateway, or does not mean well: one clear error, and no endless memory."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.server import ServerProtocol

import parley
from parley.sdk.launch.network import MAX_BYTES

MADE = b'{"session_id":"s","last_line":0,"last":0}'
BOMB = gzip.compress(b'{"session_id":"' + b"a" * (2 * MAX_BYTES) + b'"}', 9)
Answer = Callable[[asyncio.StreamWriter, bytes], None]


def reply(body: bytes, status: int = 200, headers: str = "") -> Answer:
    def answer(writer: asyncio.StreamWriter, head: bytes) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body)

    return answer


def frames(*messages: bytes, end: str = "") -> Answer:
    """A session whose WebSocket sends these texts, and closes with a reason."""

    def answer(writer: asyncio.StreamWriter, head: bytes) -> None:
        if b"Upgrade: websocket" not in head:
            return reply(MADE)(writer, head)
        protocol = ServerProtocol()
        protocol.receive_data(head)
        protocol.send_response(protocol.accept(protocol.events_received()[0]))  # type: ignore[arg-type]
        for message in messages:
            protocol.send_text(message)
        if end:
            protocol.send_close(4400, end)
        return writer.writelines(protocol.data_to_send())

    return answer


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    connections: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
                await reader.readexactly(int(length or 0))
                answer(writer, head)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.create_task(serve(reader, writer)))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.wait(connections)  # they end when the client has left


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(b"<html>"), "is not a gateway"),
        (reply(b"[]"), "is not a gateway"),
        (reply(b"{}"), "is not a gateway"),
        (reply(b'{"session_id":{"a":1}}'), "is not a gateway"),
        (reply(b"", 302, "location: http://127.0.0.1:9/\r\n"), "is not a gateway"),
        (reply(BOMB, 200, "content-encoding: gzip\r\n"), "sent more than"),
        (frames(b'abc\t{"type":"system"}'), "cannot be read"),
        (frames(b'1\t{"type":"result" nope', b"2\t", b"3\t" + b"[" * 5_000, end="It is over."), "It is over."),
        (frames(b'1\t{"type":"control_response","response":5}', end="It is over."), "It is over."),
        (frames(b'1\t{"type":"control_response","response":{"subtype":"error"}}', end="It is over."), "It is over."),
        (frames(b"1\t" + b"a" * (MAX_BYTES + 1)), "cannot be read"),
    ],
    ids=["html", "list", "no-id", "wrong-id", "redirect", "bomb", "number", "json", "response", "reply", "long-line"],
)
async def test_an_answer_that_no_gateway_gives_is_a_connection_error(answer: Answer, expected: str) -> None:
    async with serving(answer) as url:
        with pytest.raises((parley.CLIConnectionError, parley.ProcessError)) as caught:
            async with parley.Client(parley.Options(engine=url, token="secret")) as client:
                await client.ask("hello")
    said = f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    assert expected in said
