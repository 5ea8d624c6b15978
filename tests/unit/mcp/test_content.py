"""Converting what an MCP server returns into blocks."""

from __future__ import annotations

from typing import Any

import pytest

from parley.mcp.content import (
    clean,
    clean_schema,
    convert_messages,
    convert_result,
    find_clash,
    is_denied,
    qualify,
    reveal,
    title,
)
from parley.permissions.rules import matches_tool
from parley.tools.base import ToolOutput


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_text_stays_a_list_of_blocks_for_the_model_and_the_host() -> None:
    assert convert_result({"content": [text("5")]}) == ToolOutput(content=[text("5")], detail=[text("5")])


def test_structured_content_becomes_its_json() -> None:
    answer = {"content": [text("echo:hi")], "structuredContent": {"s": "hi"}}

    spelled = '{"s":"hi"}'
    assert convert_result(answer) == ToolOutput(
        content=spelled, detail={"content": spelled, "structuredContent": {"s": "hi"}}
    )


def test_an_error_is_its_text() -> None:
    answer = {"content": [text("boom"), text("twice")], "isError": True}

    assert convert_result(answer) == ToolOutput(content="boom\ntwice", detail="Error: boom\ntwice", is_error=True)


@pytest.mark.parametrize(
    ("item", "block"),
    [
        (
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ),
        ({"type": "image", "data": "aGk=", "mimeType": "image/tiff"}, "image of type image/tiff, about 3 bytes"),
        ({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, "audio of type audio/wav"),
        ({"type": "resource", "resource": {"uri": "a://b", "text": "words"}}, "[Resource a://b]\nwords"),
        ({"type": "resource", "resource": {"uri": "a://b", "blob": "aGk="}}, "resource a://b of type unknown"),
        ({"type": "resource_link", "name": "b", "uri": "a://b", "description": "d"}, "resource b at a://b: d"),
        ({"type": "hologram"}, "unknown type 'hologram'"),
        ({"type": "resource", "resource": 7}, "cannot be shown"),
        ({"type": "image", "data": {}, "mimeType": {"no": "text"}}, "cannot be shown"),
    ],
)
def test_every_kind_of_content_is_something_a_model_can_read(item: Any, block: Any) -> None:
    content = convert_result({"content": [item]}).content
    assert isinstance(content, list)
    [made] = content
    assert made == block if isinstance(block, dict) else block in made["text"]


@pytest.mark.parametrize("answer", [{}, {"content": None}, {"content": "text"}, {"content": [7]}])
def test_an_answer_without_content_says_so(answer: Any) -> None:
    assert convert_result(answer).content == "(the tool returned no content)"


def test_what_could_deceive_a_reader_is_taken_out() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")

    assert clean(f"a\x1b[31mred\x1b[0m \x1b]0;title\x07b\x00\x9b\u202ec{hidden}\td\ne 👩‍🔧") == "ared bc\td\ne 👩‍🔧"


@pytest.mark.parametrize(
    "hidden",
    [
        *"\u00ad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2064\u2066\u2069\u206f\u3164",
        *"\ufe00\ufe0f\ufeff\uffa0\ufff9\U0001d173\U000e0001\U000e0041\U000e007f\U000e0100\U000e01ef",
        "\u200d\u200d\u200d",
        "\u200c\ufe0f\u200d",
    ],
)
def test_what_is_not_seen_is_taken_out_or_spelled_out(hidden: str) -> None:
    assert clean(f"{hidden}pay{hidden}pal{hidden}") == "paypal"
    assert reveal(f"pay{hidden}pal") == f"pay{hidden.encode('unicode_escape').decode()}pal"


@pytest.mark.parametrize("text", ["👩‍🔧", "❤️‍🔥", "#️⃣", "☎️", "می‌خواهم", "क्‍ष", "a\tb\nc", "Grüße 你好 שלום"])
def test_what_writing_needs_stays(text: str) -> None:
    assert (clean(f"x {text} y"), reveal(text)) == (f"x {text} y", text)


def test_of_a_schema_what_people_read_is_cleaned() -> None:
    schema = {"title": "a\u200b", "properties": {"b\u200b": {"description": "c\u202e", "enum": ["d\u200b"]}}}
    assert clean_schema(schema) == {"title": "a", "properties": {"b\u200b": {"description": "c", "enum": ["d\u200b"]}}}


def test_a_prompt_keeps_its_messages_and_says_which_are_not_the_users() -> None:
    answer = {
        "messages": [
            {"role": "user", "content": text("Do")},
            {"role": "assistant", "content": [text("Done")]},
            7,
        ]
    }

    assert convert_messages(answer) == [text("Do"), text("[The assistant:]"), text("Done")]


def test_what_is_structured_is_cleaned_within() -> None:
    answer = {"content": [], "structuredContent": {"a\u202e": ["\x1b[31mred", {"b": "hid\U000e0041den"}, 7]}}
    found = convert_result(answer)
    assert found.content == '{"a":["red",{"b":"hidden"},7]}'
    assert found.detail == {"content": found.content, "structuredContent": {"a": ["red", {"b": "hidden"}, 7]}}


def test_characters_that_a_model_api_rejects_in_a_name_become_underscores() -> None:
    assert qualify("my server.io", "läuft/gut") == "mcp__my_server_io__l_uft_gut"


def test_a_name_for_people_is_made_from_words() -> None:
    assert [title("add"), title("send_mail"), title("get-x")] == ["Add", "Send mail", "Get x"]


@pytest.mark.parametrize("pattern", ["mcp__git__push", "mcp__git", "mcp__git__*", "mcp__*__push"])
def test_a_tool_is_denied_by_its_name_its_server_or_a_glob(pattern: str) -> None:
    assert is_denied("git", "mcp__git__push", [pattern])
    assert not is_denied("github", "mcp__github__pull", [pattern])


def test_a_tool_is_not_denied_by_the_beginning_of_its_servers_name() -> None:
    assert not is_denied("git__hub", "mcp__git__hub__push", ["mcp__git"])
    assert is_denied("git__hub", "mcp__git__hub__push", ["mcp__git__hub"])


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("a.b", "a_b", True),
        ("a", "a__b", True),
        ("a", "a.", True),
        ("a", "a__", True),
        ("ä", "ö", True),
        ("a", "a_b", False),
        ("a", "A", False),
        ("a", "ab", False),
        ("a_b", "a-b", False),
    ],
)
def test_servers_with_indistinguishable_tools_clash(one: str, other: str, clash: bool) -> None:
    assert (find_clash(one, [other]), find_clash(other, [one])) == ((other, one) if clash else (None, None))


def test_a_denied_server_may_be_named_as_in_its_configuration() -> None:
    assert is_denied("a.b", "mcp__a_b__t", ["mcp__a.b"])
    assert matches_tool("mcp__a.b", "mcp__a_b__t", "deny", "a_b")
    assert not matches_tool("mcp__a.b", "mcp__a_c__t", "deny", "a_c")
