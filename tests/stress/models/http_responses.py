"""Compare how `models/http/response.py` and h11 read random HTTP responses, most of them broken in some way.

    python -m tests.stress.models.http_responses --count 1000000 --seed 1

What both accept must have the same status and body. Where only one accepts a response, the difference must be one of
`DIFFERENCES`, each with its reason.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from random import Random
from typing import NamedTuple

import h11

from parley.models.http.response import BadResponse, ResponseParser

HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 304 Not Modified\r\n",
    b"HTTP/1.1 500\r\n",
    b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 101 Switching\r\n",
    b"HTTP/2.0 200 OK\r\n",
    b"HTTP/1.1 099 x\r\n",
    b"HTTP/1.1 999 x\r\n",
    b"HTTP/1.1  200 OK\r\n",
    b"\r\nHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\n",
    b"http/1.1 200 OK\r\n",
]
FIELDS = [
    b"transfer-encoding: chunked\r\n",
    b"content-length: 5\r\n",
    b"Transfer-Encoding: CHUNKED\r\n",
    b"transfer-encoding: gzip\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"transfer-encoding: chunked, chunked\r\n",
    b"transfer-encoding: identity\r\n",
    b"content-length: 5, 5\r\n",
    b"content-length: 6\r\n",
    b"content-length: +5\r\n",
    b"content-length: -1\r\n",
    b"content-length: 0x5\r\n",
    b"content-length: 5 5\r\n",
    b"content-length:\r\n",
    b"content-length: 99999999999999999999999\r\n",
    b"connection: close\r\n",
    b"connection: keep-alive\r\n",
    b"upgrade: h2c\r\nconnection: upgrade\r\n",
    b"trailer: x\r\n",
    b"x : y\r\n",
    b" folded: x\r\n",
    b"\ttab\r\n",
    b"x: y\n",
    b"x\r\n",
    b": y\r\n",
    b"x: \x00\r\n",
    b"x: \xff\r\n",
    b"x: a\rb\r\n",
]
BODIES = [
    b"5\r\nhello\r\n",
    b"hello",
    b"0\r\n\r\n",
    b"0\r\nx: y\r\n\r\n",
    b"0;x\r\n\r\n",
    b"0\r\nbad trailer\r\n\r\n",
    b"0\n\n",
    b"0\r\n",
    b"3;x=y\r\nabc\r\n",
    b"3; x\r\nabc\r\n",
    b'3;a="b"\r\nabc\r\n',
    b'3;"a\r\nb"\r\nabc\r\n',
    b"3 \r\nabc\r\n",
    b"0x2\r\nab\r\n",
    b"+2\r\nab\r\n",
    b"2\r\nabc\r\n",
    b"2\nab\n",
    b"-1\r\n",
    b"\r\n",
    b"\n",
    b"5",
    b"zz",
    b"FFFFFFFFFFFFFFFFF\r\n",
    b"0000000000000000000005\r\nhello\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
]
USUAL = 2
"""So many of each list's first entries are drawn as often as all others together."""
H11_BUFFER_BYTES = 64 * 1024
A_REQUEST = h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")])


class Reading(NamedTuple):
    status: int | None
    body: bytes
    problem: str = ""
    """Empty if the response is complete."""


class Difference(NamedTuple):
    ours: str
    """What our problem begins with; a regular expression. Empty: we accept the response."""
    theirs: str
    reason: str
    data: bytes = b""
    """What must stand in such a response; a regular expression."""


DIFFERENCES = [
    Difference(".*Content-Length", "", "repeated lengths are refused, even if they are equal"),
    Difference(".*not HTTP/1.1 but", "", "a server that answers with another version than it was asked for"),
    Difference(".*Invalid HTTP version", "", "the same, for a version that does not exist"),
    Difference(".*Unexpected whitespace after header value", "", "folded headers are obsolete (RFC 9112, 5.2)"),
    Difference(".*Invalid header value char", "", "control characters in a header (RFC 9110, 5.5)"),
    Difference(".*Invalid character in chunk extensions", "", "a space in a chunk extension, which nobody sends"),
    Difference(".*Expected LF after chunk size", "", "a CR in a chunk extension"),
    Difference(".*unsupported transfer encoding", "", "a transfer encoding that was not requested"),
    Difference("", "no response line received|illegal request line", "an empty line before the response is skipped"),
    Difference("", "illegal chunk header|peer .*closed connection", "LF alone after a chunk size", rb"(?<!\r)\n"),
    Difference("", "illegal chunk header", "leading zeros of a chunk size; the size is the same", rb"0{10}"),
    Difference("", "illegal status line", "control characters in the reason phrase, which is ignored"),
]


def read_with_h11(reads: list[bytes]) -> Reading:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=H11_BUFFER_BYTES)
    connection.send(A_REQUEST)
    connection.send(h11.EndOfMessage())
    status, body = None, b""
    try:
        for data in [*reads, b""]:
            connection.receive_data(data)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return Reading(status, body)
                elif isinstance(event, h11.ConnectionClosed):
                    break
    except h11.RemoteProtocolError as exc:
        return Reading(status, body, str(exc))
    return Reading(status, body, "the connection ended")


def read_with_ours(reads: list[bytes]) -> Reading:
    response, body = ResponseParser(), b""
    try:
        for data in reads:
            body += response.feed(data)
            if response.is_complete:
                break
        else:
            response.feed_eof()
    except BadResponse as exc:
        return Reading(response.status, body, str(exc))
    return Reading(response.status, body)


def find_difference(reads: list[bytes]) -> str | None:
    """The reason for a known difference, None if there is no difference. Raises AssertionError for any other."""
    ours, theirs = read_with_ours(reads), read_with_h11(reads)
    if (ours.problem and theirs.problem) or ours == theirs:
        return None
    for known in DIFFERENCES:
        of_ours = known.ours and not theirs.problem and re.match(known.ours, ours.problem)
        of_theirs = known.theirs and not ours.problem and re.match(known.theirs, theirs.problem)
        if (of_ours or of_theirs) and re.search(known.data, b"".join(reads)):
            return known.reason
    raise AssertionError(f"{reads} is read as {ours}, and by h11 as {theirs}")


def draw(dice: Random, choices: list[bytes]) -> bytes:
    return dice.choice(choices[:USUAL] if dice.random() < 0.5 else choices)


def make_response(dice: Random) -> list[bytes]:
    """A response in the pieces in which it arrives."""
    parts = [HEADS[0] if dice.random() < 0.7 else dice.choice(HEADS)]
    parts += [draw(dice, FIELDS) for _ in range(dice.randrange(4))]
    parts += [b"\r\n" if dice.random() < 0.9 else dice.choice([b"\n", b""])]
    parts += [draw(dice, BODIES) for _ in range(dice.randrange(6))]
    data = b"".join(parts)
    if dice.random() < 0.2:
        at = dice.randrange(len(data))
        data = data[:at] + bytes([dice.randrange(256)]) + data[at + dice.randrange(2) :]
    reads = []
    while data:
        size = len(data) if dice.random() < 0.5 else dice.randrange(1, len(data) + 1)
        reads.append(data[:size])
        data = data[size:]
    return reads


def compare(count: int, seed: int) -> Counter[str]:
    """How often each known difference occurred. Raises AssertionError for an unknown one."""
    dice = Random(seed)
    found = (find_difference(make_response(dice)) for _ in range(count))
    return Counter(reason for reason in found if reason is not None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = compare(given.count, given.seed)
    lines = [f"{count:9,}  {reason}" for reason, count in found.most_common()]
    sys.stdout.write("\n".join([f"{given.count:9,}  responses, every difference explained", *lines]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
