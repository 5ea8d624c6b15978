"""Structured output: an answer that fits its schema, or a result that says that there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.turn.structured_output import OutputSchema, parse_output_schema
from parley.errors import UsageError
from parley.models.event_synthesis import event_objects, message_json
from tests.helpers.http_server import loopback, stream
from tests.helpers.session import Json, SessionHarness

NUMBER = {"type": "object", "properties": {"answer": {"type": "number"}}, "required": ["answer"]}
GIVES = """
[[turn]]
tools = [{ name = "StructuredOutput", input = %s }]
"""
SAYS = """
[[turn]]
text = '''%s'''
"""


def gives(toml: str) -> str:
    return GIVES % toml


async def results(folder: Path, script: str, *, prompts: int = 1, tries: int = 3, **options: Any) -> list[Json]:
    """The results of as many prompts."""

    harness = SessionHarness(folder, script, json_schema=json.dumps(NUMBER), **options)
    harness.environment["MAX_STRUCTURED_OUTPUT_RETRIES"] = str(tries)
    found = []
    async with harness:
        for _ in range(prompts):
            harness.prompt("go")
            found.append(await harness.receive("result"))
    return found


def gist(result: Json) -> tuple[Any, ...]:
    report = result["structured_output_report"]
    return (result["subtype"], result.get("structured_output"), report["attempts"], report["repaired"])


# A form by itself.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ("12", "must be an object"),
        ('{"type": "nubmer"}', "is invalid at /type"),
        ('{"properties": 3}', "is invalid at /properties"),
        ('{"$ref": "#/$defs/gone"}', "has a reference to '#/$defs/gone'"),
        ('{"properties": {"a": {"$ref": "http://127.0.0.1:9/a.json"}}}', "has a reference to 'http"),
        ('{"$ref": "#"}', "references that form an endless loop"),
    ],
)
def test_what_is_not_a_schema_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("$", r"\$").replace("/", "/")) as caught:
        parse_output_schema(text, 3)

    assert "\n" not in str(caught.value)


def test_references_within_a_schema_and_values_that_look_like_some_are_fine() -> None:
    schema: Json = {
        "$defs": {"n": {"type": "number"}},
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"const": {"$ref": "nowhere"}}},
        "required": ["a"],
    }
    form = OutputSchema(schema, 5)

    assert [form.accept(given) for given in ({"a": "x"}, {"a": 1})] == [False, True]


@pytest.mark.parametrize(
    ("given", "output", "repaired"),
    [
        ({"answer": 1}, {"answer": 1}, False),
        ({"output": {"answer": 1}}, {"answer": 1}, True),
        ({"result": '{"answer": 1}'}, {"answer": 1}, True),
        ('{"answer": 1}', {"answer": 1}, True),
    ],
)
def test_an_answer_in_one_wrapper_or_as_text_is_repaired(given: Any, output: Json, repaired: bool) -> None:
    form = OutputSchema(NUMBER, 5)

    assert form.accept(given)
    assert (form.output, form.repaired) == (output, repaired)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"answer": "x"}, "/answer: 'x' is not of type 'number'"),
        ({"a": {"b": {"answer": 1}}}, "/: 'answer' is a required property"),
        ({"answer": {"answer": 1}, "more": 2}, "/answer: {'answer': 1} is not of type 'number'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(given: Any, error: str) -> None:
    form = OutputSchema(NUMBER, 5)

    assert not form.accept(given)
    assert form.errors == [error]


def test_a_schema_that_is_not_of_an_object_is_wrapped_in_one() -> None:
    form = OutputSchema({"type": "array", "items": {"type": "integer"}}, 5)
    schema = form.tool().input_schema

    assert (schema["type"], schema["required"]) == ("object", ["output"])
    assert form.accept([1, 2])


# In a session.


async def test_an_answer_that_does_not_fit_is_asked_for_again(tmp_path: Path) -> None:
    [result] = await results(tmp_path, gives('{ answer = "x" }') + gives("{ answer = 42 }"))

    assert gist(result) == ("success", {"answer": 42}, 2, False)
    assert (result["result"], result["num_turns"], result["stop_reason"]) == ('{"answer":42}', 3, "tool_use")


async def test_without_an_answer_in_the_end_the_result_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    [result] = await results(tmp_path, gives('{ answer = "x" }') * 3)

    assert gist(result) == ("error_max_structured_output_retries", None, 3, False)
    assert (result["is_error"], result["terminal_reason"]) == (True, "structured_output_retry_exhausted")
    assert result["errors"] == ["No valid structured output after 3 attempts", "/answer: 'x' is not of type 'number'"]


async def test_a_model_that_only_writes_text_is_asked_for_output_and_given_up_in_the_end(tmp_path: Path) -> None:
    talking = SAYS % "It is 42."
    spoken, never = await results(tmp_path, talking + gives("{ answer = 42 }") + talking * 3, prompts=2)

    assert gist(spoken) == ("success", {"answer": 42}, 2, False)
    assert gist(never) == ("error_max_structured_output_retries", None, 3, False)
    assert "the answer is not JSON" in never["errors"][1]


async def test_a_text_that_matches_the_schema_is_accepted(tmp_path: Path) -> None:
    [result] = await results(tmp_path, SAYS % '{"answer": 7}')

    assert gist(result) == ("success", {"answer": 7}, 1, False)


async def test_attempts_are_counted_again_in_every_turn(tmp_path: Path) -> None:
    round_ = gives('{ answer = "x" }') * 2 + gives("{ answer = 1 }")
    found = await results(tmp_path, round_ * 4, prompts=4)

    assert [gist(result) for result in found] == [("success", {"answer": 1}, 3, False)] * 4


async def test_arguments_that_are_not_json_and_denied_calls_are_attempts_too(tmp_path: Path) -> None:
    [garbled] = await results(tmp_path, gives("'{\"answer\": '") * 3)
    [denied] = await results(tmp_path, gives("{ answer = 1 }") * 3, disallowed_tools=("StructuredOutput",))

    assert [gist(result)[0] for result in (garbled, denied)] == ["error_max_structured_output_retries"] * 2
    assert len(denied["permission_denials"]) == 3


async def test_limits_end_a_turn_before_its_answer_as_they_do_otherwise(tmp_path: Path) -> None:
    [result] = await results(tmp_path, gives('{ answer = "x" }') * 3, max_turns=1)

    assert result["subtype"] == "error_max_turns"
    assert "structured_output" not in result


async def test_a_schema_can_come_with_initialize_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, gives("{ answer = 5 }")) as harness:
        bad = await harness.request("initialize", jsonSchema={"type": "nubmer"})
        good = await harness.request("initialize", jsonSchema=NUMBER)
        harness.prompt("go")
        first = await harness.receive("system", "init")
        result = await harness.receive("result")
    assert "the JSON schema is invalid" in bad["response"]["error"]
    assert good["response"]["subtype"] == "success"
    assert "StructuredOutput" in first["tools"]
    assert result["structured_output"] == {"answer": 5}


async def asked_over_http(folder: Path, model: str, block: Json) -> tuple[Json, Json]:
    """The body of the request, and the result."""
    message = message_json([block], id="msg_1", model="m", usage={"input_tokens": 1, "output_tokens": 1})
    sse = [f"data: {json.dumps(event)}\n\n".encode() for event in event_objects(message, 40)]

    async with loopback(stream(*sse)) as server:
        harness = SessionHarness(folder, "", model=model, json_schema=json.dumps(NUMBER), tools=())
        harness.environment["ANTHROPIC_BASE_URL"] = server.url
        async with harness:
            harness.prompt("go")
            result = await harness.receive("result")
        return json.loads(server.heard[0].body), result


async def test_a_model_that_knows_no_schemas_gets_a_tool(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "StructuredOutput", "input": {"answer": 1}}
    body, result = await asked_over_http(tmp_path, "claude-opus-5-5", call)

    assert [(tool["name"], tool["input_schema"]) for tool in body["tools"]] == [("StructuredOutput", NUMBER)]
    assert "format" not in body.get("output_config", {})
    assert result["structured_output"] == {"answer": 1}


async def test_a_model_that_knows_schemas_gets_the_schema(tmp_path: Path) -> None:
    body, result = await asked_over_http(tmp_path, "anthropic:gpt-5", {"type": "text", "text": '{"answer": 1}'})

    assert "tools" not in body
    assert body["output_config"]["format"] == {"type": "json_schema", "schema": NUMBER}
    assert result["structured_output"] == {"answer": 1}
