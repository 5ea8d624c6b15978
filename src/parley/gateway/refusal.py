"""A refusal: its code, its text, and the HTTP status and WebSocket close code that go with it."""

from __future__ import annotations

import msgspec

STATUS = {
    "already_decided": 409,
    "callbacks_taken": 409,
    "cluster_unavailable": 503,
    "cursor_in_the_future": 409,
    "cursor_of_another_session": 409,
    "delegated": 409,
    "duplicate_prompt": 409,
    "duplicate_request": 409,
    "engine_ended": 502,
    "forbidden": 403,
    "forbidden_host": 421,
    "forbidden_origin": 403,
    "hosts_failed": 500,
    "internal_error": 500,
    "invalid_body": 400,
    "invalid_cursor": 400,
    "invalid_line": 400,
    "invalid_options": 400,
    "invalid_query": 400,
    "method_not_allowed": 405,
    "name_taken": 409,
    "no_owner": 503,
    "no_wire_log": 404,
    "not_found": 404,
    "outside_roots": 403,
    "question_withdrawn": 409,
    "quota_exceeded": 429,
    "rate_limited": 429,
    "session_busy": 409,
    "shutting_down": 503,
    "storage_error": 500,
    "timed_out": 408,
    "too_large": 413,
    "too_many_connections": 503,
    "unauthorized": 401,
    "unknown_directory": 404,
    "unknown_message": 404,
    "unknown_question": 404,
    "unknown_session": 404,
    "unknown_token": 404,
}
"""The HTTP status of each code."""
CLOSE = {401: 4401, 403: 4403, 404: 4404, 409: 4409, 413: 1009, 429: 4429, 503: 1012}
"""The close code of a WebSocket, by HTTP status."""


class Refusal(Exception):
    """A request or a line of a client that is refused. `code` is a key of `STATUS`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def status_of(code: str) -> int:
    return STATUS.get(code, 400)


def close_code(code: str) -> int:
    return CLOSE.get(status_of(code), 4400)


def error_body(code: str, text: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": text}})
