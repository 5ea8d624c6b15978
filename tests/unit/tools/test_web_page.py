"""What kind of content a page is, and how its letters are coded."""

from __future__ import annotations

import pytest

from parley.tools.web_page import decode_body, is_text, page_text


@pytest.mark.parametrize(
    "kind",
    ["text/html", "text/plain; charset=x", "TEXT/CSS", "application/json", "application/ld+json", "application/xml",
     "application/xhtml+xml", "image/svg+xml", "application/javascript", "application/x-ndjson", "application/x-yaml"],
)  # fmt: skip
def test_these_can_be_read(kind: str) -> None:
    assert is_text(kind, b"\0") is True


@pytest.mark.parametrize(
    "kind", ["image/png", "application/pdf", "application/octet-stream", "video/mp4", "application/zip"]
)
def test_these_cannot(kind: str) -> None:
    assert is_text(kind, b"text") is False


def test_without_a_kind_the_content_decides() -> None:
    assert is_text("", b"plain") is True
    assert is_text("", b"PK\0\0") is False


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("é".encode(), "text/plain", "é"),
        ("é".encode("latin-1"), "text/plain; charset=ISO-8859-1", "é"),
        ("é".encode("latin-1"), 'text/html; charset="latin-1"', "é"),
        ("<meta charset=windows-1252>€".encode("cp1252"), "text/html", "<meta charset=windows-1252>€"),
        (
            '<?xml version="1.0" encoding="latin-1"?>é'.encode("latin-1"),
            "text/xml",
            '<?xml version="1.0" encoding="latin-1"?>é',
        ),
        ("é".encode("utf-8-sig"), "text/plain; charset=latin-1", "é"),
        ("é".encode("utf-16"), "text/plain", "é"),
        ("é".encode(), "text/plain; charset=no-such-code", "é"),
        (b"41", "text/plain; charset=hex", "41"),
        (b"a\xffb", "text/plain", "a\ufffdb"),
    ],
)
def test_letters_are_read_by_mark_header_page_or_custom(body: bytes, kind: str, text: str) -> None:
    assert decode_body(body, kind) == text


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"<p>a</p><p>b</p>", "text/html; charset=utf-8", "a\n\nb"),
        (b"<p>a</p>", "application/xhtml+xml", "a"),
        (b" <p>a</p>", "", "a"),
        (b'{"a": "<p>"}\n', "application/json", '{"a": "<p>"}'),
        (b"<p>a</p>", "text/plain", "<p>a</p>"),
    ],
)
def test_html_is_laid_out_and_the_rest_is_left_alone(body: bytes, kind: str, text: str) -> None:
    assert page_text(body, kind, "https://example.com/") == text
