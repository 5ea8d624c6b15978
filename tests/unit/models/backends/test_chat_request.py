"""Conversion of requests to the chat completions API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parley.protocol.base import Json
from tests.helpers.model_bodies import chat_body
from tests.helpers.models import asking, assistant, text, user

PIXEL: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
SHOWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def result(id: str, content: str | list[Json], **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def use(id: str, name: str, **input: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def called(id: str, name: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def messages(*given: Json, declared: tuple[str, ...] = (), **fields: Any) -> list[Json]:
    sent: list[Json] = chat_body(asking(*given, **fields), "gpt", declared)["messages"]
    return sent


def test_a_request_has_the_model_the_usage_option_and_the_length() -> None:
    assert chat_body(asking(user("Hi")), "gpt", ()) == {
        "model": "gpt",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_a_length_that_is_only_our_guess_is_not_sent() -> None:
    assert "max_tokens" not in chat_body(asking(user("Hi"), max_tokens=32_000), "gpt", ())


@pytest.mark.parametrize(
    ("declared", "dropped", "name"),
    [
        ((), (), "max_tokens"),
        ((), ("max_tokens",), "max_completion_tokens"),
        (("max_completion_tokens",), (), "max_completion_tokens"),
        (("max_completion_tokens",), ("max_completion_tokens",), "max_tokens"),
    ],
)
def test_the_length_goes_under_the_name_that_the_server_knows(
    declared: tuple[str, ...], dropped: tuple[str, ...], name: str
) -> None:
    sent = chat_body(asking(user("Hi")), "gpt", declared, dropped)

    assert {key: value for key, value in sent.items() if key.startswith("max")} == {name: 100}


def test_the_form_of_an_answer_goes_along() -> None:
    request = asking(user("Hi"), output_schema={"type": "object"})

    assert chat_body(request, "gpt", ())["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }
    assert "response_format" not in chat_body(asking(user("Hi")), "gpt", ("response_format",))


def test_effort_is_sent_only_where_it_is_declared() -> None:
    request = asking(user("Hi"), effort="low")

    assert "reasoning_effort" not in chat_body(request, "gpt", ())
    assert chat_body(request, "gpt", ("reasoning_effort",))["reasoning_effort"] == "low"


def test_tools_become_functions_and_those_of_another_backend_stay_away() -> None:
    schema = {"type": "object", "properties": {}}
    tools: list[Json] = [
        {"name": "Read", "description": "reads", "input_schema": schema},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    sent = chat_body(asking(user("Hi"), tools=tools), "gpt", ())

    assert sent["tools"] == [
        {"type": "function", "function": {"name": "Read", "description": "reads", "parameters": schema}}
    ]


def test_a_conversation_with_calls_and_results() -> None:
    assert messages(
        user([text("Look.")]),
        assistant(
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            text("I look."),
            use("c1", "Read", file_path="a"),
            use("c2", "Read", file_path="b"),
        ),
        user([result("c1", "A"), result("c2", [text("B1"), text("B2")], is_error=True), text("Go on.")]),
        system=[text("Be brief."), text("Be kind.")],
    ) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [called("c1", "Read", '{"file_path":"a"}'), called("c2", "Read", '{"file_path":"b"}')],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "A"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: B1\nB2"},
        {"role": "user", "content": "Go on."},
    ]


def test_calls_without_a_text_have_an_empty_one() -> None:
    [said] = messages(assistant(use("c1", "Read", file_path="a")))

    assert said["content"] == ""


def test_thoughts_go_back_only_to_a_server_that_wants_them() -> None:
    said = assistant({"type": "thinking", "thinking": "Hm.", "signature": ""}, text("Yes."))

    assert messages(said) == [{"role": "assistant", "content": "Yes."}]
    assert messages(said, declared=("reasoning_content",)) == [
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    ]


def test_what_means_nothing_here_is_left_out() -> None:
    redacted: Json = {"type": "redacted_thinking", "data": "x"}
    search: Json = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}

    assert messages(user("Hi"), assistant(redacted), assistant(search, text("Found."))) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Found."},
    ]


def test_an_image_of_the_user_is_a_part() -> None:
    by_url: Json = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}

    assert messages(user([text("See:"), PIXEL, by_url])) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See:"},
                SHOWN,
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
            ],
        }
    ]


def test_an_image_that_a_tool_gave_follows_in_a_message_of_the_user() -> None:
    given = user([result("c1", [text("a.png"), PIXEL]), result("c2", "fine"), text("And?")])

    assert messages(given) == [
        {"role": "tool", "tool_call_id": "c1", "content": "a.png\n[image: see the next message]"},
        {"role": "tool", "tool_call_id": "c2", "content": "fine"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the tool call c1:"},
                SHOWN,
                {"type": "text", "text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ({"type": "text", "data": "words"}, {"type": "text", "text": "T:\nwords"}),
        ({"type": "url", "url": "https://x.test/a.pdf"}, {"type": "text", "text": "T: https://x.test/a.pdf"}),
        (
            {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            {"type": "file", "file": {"filename": "T", "file_data": "data:application/pdf;base64,JVBE"}},
        ),
    ],
)
def test_a_document_is_a_text_or_a_file(source: Json, part: Json) -> None:
    sent = messages(user([PIXEL, {"type": "document", "title": "T", "source": source}]))

    assert sent == [{"role": "user", "content": [SHOWN, part]}]


def test_the_next_request_begins_with_the_bytes_of_the_last_one() -> None:
    said = [user([text("Look.")]), assistant(use("c1", "Read")), user([result("c1", [PIXEL])])]
    more = [*said, assistant(text("Done.")), user([text("Thanks.")])]
    first, second = (msgspec.json.encode(chat_body(asking(*conversation), "gpt", ())) for conversation in (said, more))

    assert second.startswith(first.removesuffix(b"]}"))
