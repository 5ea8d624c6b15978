"""HTML as text: what a person would read, whatever the page is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from parley.tools.web_page import MOST_PENDING_CHARS, MOST_TAGS, TOO_MANY_TAGS, HtmlReader, html_to_text

URL = "https://example.com/docs/page.html"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One  two\n three</p><p>four</p>", "One two three\n\nfour"),
        ("one<br>two<div>three</div>four", "one\ntwo\nthree\nfour"),
        ("<h1>Big <em>head</em></h1>text<h3>Small</h3>", "# Big head\n\ntext\n\n### Small"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>end", "- a\n- b\n  - c\n\nend"),
        ("<ol><li>a</li><li><p>b</p></li></ol>", "1. a\n2. b"),
        ("<p>Set <code>x = 1</code> now", "Set `x = 1` now"),
        ("<pre><code>\ndef f():\n    return 1\n</code></pre>after", "```\ndef f():\n    return 1\n```\n\nafter"),
        ("<pre>never\n  closed", "```\nnever\n  closed\n```"),
        ("<table><tr><th>K<th>V<tr><td><p>a</p></td><td>1</td></table>x", "K | V\na | 1\n\nx"),
        ("fish &amp; chips &lt;b&gt; &#233;", "fish & chips <b> é"),
        ("<img alt='A cat' src=x><img src=y>", "[image: A cat]"),
        ("a<script>if (1 < 2) { '<p>b</p>' }</script>c<style>p{}</style>d", "acd"),
        ("a<noscript><p>b</p></noscript><svg><text>c</text></svg><svg/>d", "ad"),
        ("<!-- hidden -->shown<!DOCTYPE html>", "shown"),
        ("tail &amp", "tail &"),
        ("", ""),
    ],
)
def test_a_page_is_laid_out(html: str, text: str) -> None:
    assert html_to_text(html, URL) == text


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("<a href='other.html?a=1&amp;b=2'>x</a>", "x (https://example.com/docs/other.html?a=1&b=2)"),
        ("<a href='/top'><b>x</b> y</a>", "x y (https://example.com/top)"),
        ("<a href='//cdn.example.org/z'>x</a>", "x (https://cdn.example.org/z)"),
        ("<a href='https://example.org/'>https://example.org/</a>", "https://example.org/"),
        ("<a href='#part'>x</a>", "x"),
        ("<a href='javascript:go()'>x</a>", "x"),
        ("<a href='mailto:a@b.c'>x</a>", "x"),
        ("<a href='http://[broken'>x</a>", "x"),
        ("<a href='/empty'></a>x", "x"),
        ("<a>x</a></a>", "x"),
        ("<a href='/one'>x<a href='/two'>y</a>", "xy (https://example.com/two)"),
        ("<a href='/a'>x<br>y</a>", "x\ny (https://example.com/a)"),
    ],
)
def test_a_link_shows_where_it_leads(link: str, text: str) -> None:
    assert html_to_text(link, URL) == text


def test_the_title_comes_first_unless_a_heading_says_the_same() -> None:
    assert html_to_text("<title>My\n page</title><p>text", URL) == "My page\n\ntext"
    assert html_to_text("<title>Same</title><h1>Same</h1>text", URL) == "# Same\n\ntext"


def test_a_picture_inside_a_tag_does_not_leak_into_the_text() -> None:
    picture = f"<img src='data:image/png;base64,{'A' * 3 * MOST_PENDING_CHARS}'>"
    assert html_to_text(f"before {picture}after", URL) == "before after"


def test_a_long_script_is_dropped_up_to_its_end_and_no_further() -> None:
    script = f"<script>{'x<1;' * MOST_PENDING_CHARS}</script>"
    assert html_to_text(f"before {script}after", URL) == "before after"


@pytest.mark.parametrize("piece", ["<", "<a ", "<a b='", "<a b=c ", "<!--", "</a", "<?", "<p>word ", "<script>x"])
def test_the_work_is_in_proportion_to_the_page(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step looks at what is pending and what is new; closing would look at all of it for every open tag."""
    looked_at = 0
    feed = HtmlReader.feed

    def counting(reader: HtmlReader, data: str) -> None:
        nonlocal looked_at
        looked_at += len(reader.rawdata) + len(data)
        feed(reader, data)

    def close(reader: HtmlReader) -> None:
        raise AssertionError("the parser was closed")

    monkeypatch.setattr(HtmlReader, "feed", counting)
    monkeypatch.setattr(HtmlReader, "close", close)
    html = piece * (300_000 // len(piece))
    html_to_text(html, URL)
    assert looked_at < 3 * len(html)


@given(some.text(alphabet="<>/ab&;\"'=! -\npreliulthda", max_size=300))
def test_any_text_can_be_read(html: str) -> None:
    text = html_to_text(html, URL)
    assert text == text.strip("\n")


@pytest.mark.parametrize("tag", ["<b>", "</a>x", "<p>x", "<a href=x>y</a>"])
def test_the_tags_of_a_page_are_limited(tag: str) -> None:
    text = html_to_text(f"<p>Start.{tag * (MOST_TAGS + 10)}", URL)

    assert text.startswith("Start.")
    assert text.endswith(TOO_MANY_TAGS)


def test_characters_that_start_no_tag_are_text() -> None:
    assert html_to_text("1 < 2 <3 <\0b> <", URL) == "1 < 2 <3 <"
    assert html_to_text("<" * 1_000_000, URL) == "<" * 1_000_000
    assert html_to_text("<img alt='a < b'>", URL) == "[image: a < b]"


@pytest.mark.parametrize("page", ["a<![b>c", "a<![>c", "<![<![<!["])
def test_a_broken_section_is_no_error(page: str) -> None:
    assert html_to_text(page, URL) in ("ac", "")
