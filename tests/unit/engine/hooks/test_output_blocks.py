"""What a model can read of what others give."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.hooks.tool_hooks import to_content

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
TEXT = {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ("text", "text"),
        ([], []),
        ([TEXT, PICTURE], [TEXT, PICTURE]),
        ({"content": [TEXT]}, [TEXT]),
        ([{"type": "image", "data": "AA==", "mimeType": "image/png"}], [PICTURE]),
        ([{"type": "text", "text": 5}], [{"type": "text", "text": "5"}]),
        ([TEXT, {"nonsense": 1}], '[{"type":"text","text":"a"},{"nonsense":1}]'),
        ([{"type": []}], '[{"type":[]}]'),
        ({"content": [5]}, '{"content":[5]}'),
        ([1, 2], "[1,2]"),
        (None, "null"),
    ],
)
def test_a_text_or_blocks_stay_and_anything_else_becomes_its_json(given: Any, content: Any) -> None:
    assert to_content(given) == content
