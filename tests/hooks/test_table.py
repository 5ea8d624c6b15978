"""The document is made from the code."""

from __future__ import annotations

from pathlib import Path

from parley.hooks.table import text

DOCUMENT = Path(__file__).parents[2] / "docs" / "hooks.md"


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text()
