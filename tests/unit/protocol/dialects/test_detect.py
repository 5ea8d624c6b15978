from __future__ import annotations

import json
from typing import Any

import pytest

from parley.protocol.dialects.base import detect

PROMPT = {"type": "user", "message": {"role": "user", "content": "Hello"}}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "status"}, "jsonrpc"),
        ({"type": "control", "action": "status"}, "miriad"),
        ({**PROMPT, "environment": {}}, "miriad"),
        ({**PROMPT, "mcp_servers": {}}, "miriad"),
        ({**PROMPT, "system_prompt": "Be kind."}, "miriad"),
        ({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}, "stream-json"),
        ({**PROMPT, "timestamp": "2026-02-02T10:30:00Z"}, "spec001"),
        ({**PROMPT, "session_id": "s", "timestamp": "2026-02-02T10:30:00Z"}, "spec001"),
        ({**PROMPT, "timestamp": "2026-02-02T10:30:00Z", "parent_tool_use_id": None}, "otherwise"),
        ({"type": "user", "content": [{"type": "text", "text": "Hello"}]}, "spec001"),
        (PROMPT, "otherwise"),
        ({**PROMPT, "session_id": "default"}, "otherwise"),
        ({"type": "dance"}, "otherwise"),
        ([PROMPT], "otherwise"),
        ([], "otherwise"),
        ([{"jsonrpc": "2.0", "id": 1, "method": "status"}], "jsonrpc"),
        ({"jsonrpc": "2.0", "id": "\ud800", "method": "status"}, "jsonrpc"),
        ({"type": "control", "action": "status", "note": "\udc00"}, "miriad"),
    ],
)
def test_the_first_line_reports_the_dialect(line: Any, name: str) -> None:
    assert detect(json.dumps(line).encode(), "otherwise") == name


@pytest.mark.parametrize("line", [b"", b"{", b"\xff", b"null", b"[" * 100_000])
def test_an_unreadable_file_reports_nothing(line: bytes) -> None:
    assert detect(line, "otherwise") == "otherwise"


@pytest.mark.parametrize(
    "line",
    [b'{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"xxx', b'[ { "jsonrpc" : "2.0" ', b'{"jsonrpc":\xff}'],
)
def test_what_begins_like_a_request_and_cannot_be_read_is_answered_as_one(line: bytes) -> None:
    assert detect(line, "otherwise") == "jsonrpc"
