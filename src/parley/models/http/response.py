"""Parse one HTTP/1.1 response, and the server-sent events in its body. No I/O.

    response = ResponseParser()
    body = response.feed(data)      # response.status is None until the head is complete
    response.feed_eof()             # the connection has ended; raises BadResponse if something is missing

    reader = EventReader()
    reader.feed(body)               # the `data` of each event that these bytes complete
    reader.end()

What arrives together is returned together, whatever chunks it was sent in. Interim responses (1xx) are skipped.
`httptools` reads the syntax, strictly; this module decides where a response ends and how much of it is not body.

Of server-sent events it supports what model APIs use: `data` lines (several are joined) with LF or CRLF; comments and
other fields are skipped. A server that does not stream sends one JSON object instead, which becomes the data of one
event.
"""

from __future__ import annotations

import httptools

LONGEST_HEAD_BYTES = 64 * 1024
"""Of everything that is not body: the head with interim responses, and what follows the last byte of the body."""
VERSIONS = ("1.0", "1.1")
LENIENCIES = {
    "lenient_optional_cr_before_lf": True,  # small servers end lines with LF alone
    "lenient_spaces_after_chunk_size": True,  # old servers fill up the size of a chunk with spaces
    "lenient_chunked_length": True,  # some gateways add a length to a chunked answer; its connection is not reused
}
"""What real servers do wrong without harm: all requests on a connection are ours."""


class BadResponse(Exception):
    """The server does not speak HTTP/1.1, or stopped in the middle of a response."""


class ResponseParser:
    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        """Names in lower case; the values of a repeated header are joined with commas."""
        self.is_complete = False
        self.is_reusable = False
        """Whether another request may be sent on the connection after this response."""
        self._ends_with_connection = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**LENIENCIES)
        self._pieces: list[bytes] = []
        self._overhead_bytes = 0
        self._problem: str | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in `data`. Raises BadResponse."""
        if self.is_complete:
            self.is_reusable = False  # nothing more was asked for
            return b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise BadResponse("the server switched to another protocol") from None
        except httptools.HttpParserError as exc:
            if not self.is_complete:
                raise BadResponse(self._problem or f"the answer is not valid HTTP: {exc}") from None
            self.is_reusable = False  # what follows the response is invalid
        if self.is_complete:
            del self._parser  # it refers to this object: both are freed without the garbage collector
        pieces, self._pieces = self._pieces, []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._overhead_bytes = 0 if body else self._overhead_bytes + len(data)
        if self._overhead_bytes > LONGEST_HEAD_BYTES:
            self._problem = f"the headers of the answer are longer than {LONGEST_HEAD_BYTES} bytes"
        if self._problem is not None:
            raise BadResponse(self._problem)
        return body

    def feed_eof(self) -> None:
        """Raises BadResponse if the response is not complete."""
        self.is_reusable = False
        if self.status is None:
            raise BadResponse("the server closed the connection without an answer")
        if not self.is_complete and not self._ends_with_connection:
            raise BadResponse("the server closed the connection before the answer was complete")
        self.is_complete = True

    # Called by the parser. An exception here would lose its text, so problems are kept for `feed`.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.is_reusable = False  # a second response in the same data

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:
            # Tabs stay: the parser does not accept them after `chunked`, so neither may we.
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" ")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in VERSIONS:
            self._problem = f"the answer is not HTTP/1.1 but HTTP/{self._parser.get_http_version()}"
        if status < 100:
            self._problem = f"the answer has an invalid status: {status}"
        if 100 <= status < 200:
            self.headers.clear()
            return
        coding = self.headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            self._problem = f"the answer has an unsupported transfer encoding: {coding[:100]}"
        self.status = status
        has_length = "content-length" in self.headers
        self.is_reusable = self._parser.should_keep_alive() and not (coding and has_length)
        self._ends_with_connection = coding is None and not has_length

    def on_body(self, data: bytes) -> None:
        if not self.is_complete:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        if self.status is not None:
            self.is_complete = True


class EventReader:
    """Splits a byte stream into events, wherever the chunks end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """The pieces of an incomplete event. Joined once, because it may be large."""
        self.pending_bytes = 0
        """The size of the incomplete event."""
        self._last_was_cr = False
        self._is_fresh = True
        self._is_whole = False
        """Whether the body is one JSON object instead of an event stream."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        if not chunk:
            return []
        if b"\r" in chunk or self._last_was_cr:
            chunk = self._without_cr(chunk)
        if self._is_fresh and (begin := chunk.lstrip()):
            self._is_fresh, self._is_whole = False, begin.startswith(b"{")
        pieces = self._pieces
        pieces.append(chunk)
        self.pending_bytes += len(chunk)
        if self._is_whole or (b"\n\n" not in chunk and not self._ends_at(chunk)):
            return []
        *events, rest = b"".join(pieces).split(b"\n\n")
        self._pieces, self.pending_bytes = [rest] if rest else [], len(rest)
        return [data for event in events if (data := event_data(event)) is not None]

    def end(self) -> list[bytes]:
        """The last event, if the stream ended without a blank line."""
        rest, self._pieces = b"".join(self._pieces).strip(b"\n"), []
        data = rest or None if self._is_whole else event_data(rest)
        return [] if data is None else [data]

    def _ends_at(self, chunk: bytes) -> bool:
        """Whether this piece starts with the second newline of a blank line."""
        return chunk.startswith(b"\n") and len(self._pieces) > 1 and self._pieces[-2].endswith(b"\n")

    def _without_cr(self, chunk: bytes) -> bytes:
        """CRLF and lone CR become LF, also if a chunk ends between the two."""
        if self._last_was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._last_was_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def event_data(event: bytes) -> bytes | None:
    """The data field of one event; None if it has none."""
    before, found, data = event.partition(b"\ndata: ")
    if found and b"\n" not in data and b"data:" not in before:
        return data.strip()  # the usual case: one data line at the end
    first = event.find(b"data:")
    if first < 0:
        return None
    if event.find(b"\n", first) < 0 and (first == 0 or event[first - 1] == 0x0A):
        return event[first + 5 :].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
