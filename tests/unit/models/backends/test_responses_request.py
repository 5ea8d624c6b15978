"""Requests of the Responses API."""

from __future__ import annotations

from typing import Any

import pytest

from parley.models.backends.reasoning_items import PHASE, pack
from parley.models.backends.responses import optional_fields
from parley.models.catalog import UNKNOWN_MODEL
from parley.protocol.base import Json
from tests.helpers.model_bodies import responses_body
from tests.helpers.models import asking, assistant, text, user

ADAPTIVE = {"type": "adaptive"}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
SHOWN = {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "auto"}
ITEM: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer"}}}


def use(id: str, name: str, **input: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, content: Any, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def thought(model: str = "gpt-5") -> Json:
    return {"type": "redacted_thinking", "data": pack(model, ITEM)}


def items(*messages: Json, **options: Any) -> list[Json]:
    found: list[Json] = responses_body(asking(*messages), "gpt-5", **options)["input"]
    return found


def said(words: str) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def test_a_request_stores_nothing_and_asks_for_the_reasoning() -> None:
    request = asking(user("Hi"), thinking=ADAPTIVE, session_id="s1", system=[text("Be."), text("Kind.")])

    assert responses_body(request, "m") == {
        "model": "m",
        "stream": True,
        "store": False,
        "prompt_cache_key": "s1",
        "max_output_tokens": 100,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "instructions": "Be.\n\nKind.",
        "input": [said("Hi")],
    }


def test_a_model_that_does_not_reason_is_asked_for_none() -> None:
    assert responses_body(asking(user("Hi"), max_tokens=UNKNOWN_MODEL.max_output_tokens), "m") == {
        "model": "m",
        "stream": True,
        "store": False,
        "input": [said("Hi")],
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"effort": "high"}, {"effort": "high"}),
        ({"effort": "max", "thinking": ADAPTIVE}, {"effort": "max", "summary": "auto"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"effort": "low", "summary": "auto"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 8000}}, {"effort": "medium", "summary": "auto"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, {"effort": "high", "summary": "auto"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}, "effort": "max"}, {"effort": "max", "summary": "auto"}),
        ({"thinking": {"type": "disabled"}}, {"effort": "none"}),
        ({"thinking": {"type": "adaptive", "display": "omitted"}, "effort": "low"}, {"effort": "low"}),
    ],
)
def test_effort_and_budget_are_the_effort_of_the_reasoning(fields: Json, expected: Json) -> None:
    assert responses_body(asking(user("Hi"), **fields), "m")["reasoning"] == expected


def test_tools_are_functions_that_are_not_strict() -> None:
    tools: list[Json] = [
        {"name": "Read", "description": "Reads.", "input_schema": SCHEMA},
        {"type": "web_search_20250305", "name": "web_search"},
    ]

    assert responses_body(asking(user("Hi"), tools=tools), "m")["tools"] == [
        {"type": "function", "name": "Read", "description": "Reads.", "parameters": SCHEMA, "strict": False}
    ]


def test_the_form_of_an_answer_goes_along() -> None:
    assert responses_body(asking(user("Hi"), output_schema=SCHEMA), "m")["text"] == {
        "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}
    }


def test_a_talk_with_reasoning_calls_and_results() -> None:
    assert items(
        user("Look."),
        assistant(thought(), text("I look."), use("c1", "Read", file_path="a"), use("c2", "Read", file_path="b")),
        user([result("c1", "A"), result("c2", [text("B1"), text("B2")], is_error=True), text("Go on.")]),
    ) == [
        said("Look."),
        ITEM,
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": '{"file_path":"a"}'},
        {"type": "function_call", "call_id": "c2", "name": "Read", "arguments": '{"file_path":"b"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "A"},
        {"type": "function_call_output", "call_id": "c2", "output": "Error: B1\nB2"},
        said("Go on."),
    ]


def test_reasoning_goes_back_only_to_the_model_that_made_it() -> None:
    foreign: Json = {"type": "thinking", "thinking": "Hm.", "signature": "of another backend"}

    assert items(assistant(thought("gpt-4"), foreign, text("Yes."))) == [
        {"type": "message", "role": "assistant", "content": "Yes."}
    ]


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    server_call: Json = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}

    assert items(assistant(thought(), text("Yes."), thought(), server_call), assistant(thought())) == [
        ITEM,
        {"type": "message", "role": "assistant", "content": "Yes."},
    ]


def test_images_and_documents_are_parts_also_in_results() -> None:
    page: Json = {"type": "document", "title": "p.pdf", "source": {"media_type": "application/pdf", "data": "JVBE"}}
    link: Json = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}

    assert items(user([text("See."), link, page]), user([result("c1", [text("One."), PIXEL]), PIXEL])) == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See."},
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
                {"type": "input_file", "filename": "p.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            ],
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "One."}, SHOWN]},
        {"type": "message", "role": "user", "content": [SHOWN]},
    ]


def test_an_error_with_an_image_is_told_as_an_error() -> None:
    [output] = items(user([result("c1", [PIXEL], is_error=True)]))

    assert output["output"] == [{"type": "input_text", "text": "Error:"}, SHOWN]


def test_the_phase_of_a_message_goes_back() -> None:
    message = assistant({**text("I look."), PHASE: "commentary"})

    assert items(message)[0]["phase"] == "commentary"
    assert "phase" not in items(message, dropped={"phase"})[0]


@pytest.mark.parametrize(
    ("dropped", "gone"),
    [
        ("reasoning.encrypted_content", "include"),
        ("include", "include"),
        ("reasoning", "reasoning"),
        ("store", "store"),
        ("max_output_tokens", "max_output_tokens"),
        ("prompt_cache_key", "prompt_cache_key"),
    ],
)
def test_a_field_that_the_server_rejected_is_left_out(dropped: str, gone: str) -> None:
    request = asking(user("Hi"), thinking=ADAPTIVE, effort="low", session_id="s1")
    before, after = responses_body(request, "m"), responses_body(request, "m", {dropped})

    assert after == {name: value for name, value in before.items() if name != gone}
    assert dropped in list(optional_fields(before, before["input"]))
    assert dropped not in list(optional_fields(after, after["input"]))


def test_half_of_the_reasoning_fields_can_be_left_out() -> None:
    request = asking(user("Hi"), thinking=ADAPTIVE, effort="low")

    assert responses_body(request, "m", {"reasoning.summary"})["reasoning"] == {"effort": "low"}
    assert "reasoning" not in responses_body(request, "m", {"reasoning.summary", "reasoning.effort"})
