from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parley.acp.prompts import convert_prompt, convert_servers
from parley.acp.schema import PromptContent
from parley.jsonrpc import RpcError


def convert(*content: Any) -> Any:
    return convert_prompt(msgspec.convert(list(content), list[PromptContent]))


def resource(**fields: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a", **fields}}


def test_a_command_keeps_the_links_that_follow_it() -> None:
    link = {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"}

    assert convert({"type": "text", "text": "/review "}, link) == "/review [@a.py](file:///a.py)"


def test_a_pdf_file_is_a_document() -> None:
    [block] = convert(resource(blob="AAAA", mimeType="application/pdf"))

    assert block["source"] == {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (resource(), "the resource file:///a has neither the field `text` nor `blob`"),
        (resource(blob="AAAA", mimeType="application/zip"), "the resource file:///a has the type 'application/zip'"),
        ({"type": "image", "data": "AAAA", "mimeType": "image/bmp"}, "unknown image type 'image/bmp'"),
    ],
)
def test_what_no_model_reads_is_refused(content: Any, expected: str) -> None:
    with pytest.raises(RpcError, match=expected):
        convert(content)


def test_servers_by_name_with_variables_and_headers() -> None:
    pair = [{"name": "A", "value": "1"}]
    servers = [
        {"name": "local", "command": "serve", "args": ["-v"], "env": pair},
        {"type": "http", "name": "far", "url": "https://example.org", "headers": pair},
    ]

    assert convert_servers(servers) == {
        "local": {"type": "stdio", "command": "serve", "args": ["-v"], "env": {"A": "1"}},
        "far": {"type": "http", "url": "https://example.org", "headers": {"A": "1"}},
    }


@pytest.mark.parametrize("server", [{"name": "x"}, {"type": "http", "name": "x"}, {"type": "acp", "name": "x"}])
def test_an_invalid_server_is_refused(server: Any) -> None:
    with pytest.raises(RpcError, match="mcpServers: "):
        convert_servers([server])
