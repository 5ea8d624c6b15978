"""The document is made from the code."""

from __future__ import annotations

from parley.hooks.table import text
from tests.helpers import paths

DOCUMENT = paths.DOCS / "hooks.md"


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text()
