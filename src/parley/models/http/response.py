"""Parse one HTTP/1.1 response: bytes in, bytes of its body out. No I/O.

    response = ResponseParser()
    body = response.feed(data)      # response.status is None until the head is complete
    response.feed_eof()             # the connection has ended; raises BadResponse if something is missing

What arrives together is returned together, whatever chunks it was sent in. Interim responses (1xx) are skipped.
`httptools` reads the syntax, strictly; this module decides where a response ends and how much of it is not body.
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
