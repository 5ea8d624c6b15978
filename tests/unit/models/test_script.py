"""The script format, and which turn answers which request."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from parley.errors import ModelError, UsageError
from parley.models import script
from parley.models.script import (
    Script,
    ScriptedCall,
    ScriptedError,
    ScriptedTurn,
    ScriptPlayer,
    call,
    last_text,
    read_script,
)
from parley.protocol.base import Json
from tests.helpers.models import asking, assistant, counting, problem, text, user

EVERYTHING = """
at_end = "repeat"

[[turn]]
thinking = "Hm."
text = "Look."
tools = [{ name = "Read" }, { name = "Bash", input = { command = "ls" }, id = "t1" }, { name = "Edit", input = "{" }]
when = "please"
delay_ms = 1.5
event_delay_ms = 2
chunk_chars = 7
usage = { input_tokens = 5 }
stop_reason = "max_tokens"

[[turn]]
blocks = [{ type = "text", text = "Hi" }, { type = "hologram", data = 1 }]

[[turn]]
error = { status = 429, type = "rate_limit_error", message = "slow down", retry_after_seconds = 3.5 }
"""

WRONG = [
    ("[[turn]", "Expected ']]' at the end of an array declaration (at line 1, column 7)"),
    ("turns = []", "Object contains unknown field `turns`"),
    ("turn = 5", "Expected `array`, got `int` - at `$.turn`"),
    ("[[turn]]\ntxt = 'a'", "Object contains unknown field `txt` - at `$.turn[0]`"),
    ("[[turn]]\ntext = 5", "Expected `str | null`, got `int` - at `$.turn[0].text`"),
    ("[[turn]]\ntools = [{ input = {} }]", "Object missing required field `name` - at `$.turn[0].tools[0]`"),
    ("[[turn]]\ntools = [{ name = 'a', x = 1 }]", "Object contains unknown field `x` - at `$.turn[0].tools[0]`"),
    ("[[turn]]\nerror = { code = 5 }", "Object contains unknown field `code` - at `$.turn[0].error`"),
    ("[[turn]]\nchunk_chars = 0", "Expected `int` >= 1 - at `$.turn[0].chunk_chars`"),
    ("[[turn]]\ndelay_ms = 'long'", "Expected `float`, got `str` - at `$.turn[0].delay_ms`"),
    ("[[turn]]\nblocks = [{ text = 'a' }]", "every block needs a `type` - at `$.turn[0]`"),
    ("at_end = 'loop'", "Invalid enum value 'loop' - at `$.at_end`"),
]


def playing(*turns: ScriptedTurn, **fields: Any) -> ScriptPlayer:
    return ScriptPlayer(Script(turn=list(turns), **fields))


def said(player: ScriptPlayer, *prompts: str) -> list[str | None]:
    """The texts of the turns that answer these prompts."""
    return [player.turn_for(asking(user(prompt))).text for prompt in prompts]


def message(turn: ScriptedTurn, prompt_chars: int = 40) -> Json:
    return turn.message("m", counting("id"), prompt_chars)


def test_the_example_in_the_docs_is_a_script() -> None:
    lines = str(script.__doc__).splitlines()
    example = dedent("\n".join(line for line in lines if not line or line.startswith("    ")))

    assert read_script(example, "docs") == Script(
        turn=[
            ScriptedTurn(text="Hello there."),
            ScriptedTurn(
                thinking="A file would help.",
                text="I will look.",
                tools=[ScriptedCall(name="Read", input={"file_path": "notes.txt"})],
            ),
            ScriptedTurn(error=ScriptedError(status=529, type="overloaded_error", message="busy")),
            ScriptedTurn(text="This never arrives whole.", fault="reset=3"),
        ]
    )


def test_every_field_of_a_script_is_read() -> None:
    assert read_script(EVERYTHING, "all.toml") == Script(
        at_end="repeat",
        turn=[
            ScriptedTurn(
                thinking="Hm.",
                text="Look.",
                tools=[
                    ScriptedCall(name="Read", input={}, id=None),
                    ScriptedCall(name="Bash", input={"command": "ls"}, id="t1"),
                    ScriptedCall(name="Edit", input="{"),
                ],
                when="please",
                delay_ms=1.5,
                event_delay_ms=2.0,
                chunk_chars=7,
                usage={"input_tokens": 5},
                stop_reason="max_tokens",
            ),
            ScriptedTurn(blocks=[{"type": "text", "text": "Hi"}, {"type": "hologram", "data": 1}]),
            ScriptedTurn(
                error=ScriptedError(status=429, type="rate_limit_error", message="slow down", retry_after_seconds=3.5)
            ),
        ],
    )


def test_an_empty_file_is_a_script_without_turns() -> None:
    assert read_script("", "empty.toml") == Script(turn=[], at_end="error")


@pytest.mark.parametrize(("content", "reason"), WRONG)
def test_a_wrong_script_is_refused_with_its_name_and_the_place(content: str, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_script(content, "some/script.toml")

    assert str(raised.value) == f"invalid script some/script.toml: {reason}"


def test_turns_without_a_cue_are_played_in_their_order() -> None:
    assert said(playing(ScriptedTurn(text="one"), ScriptedTurn(text="two")), "a", "b") == ["one", "two"]


def test_a_turn_with_a_cue_waits_for_it_and_is_played_once() -> None:
    player = playing(
        ScriptedTurn(text="bye", when="good night"),
        ScriptedTurn(text="one"),
        ScriptedTurn(text="two"),
        ScriptedTurn(text="three"),
    )

    assert said(player, "hello", "and good night then", "good night", "x") == ["one", "bye", "two", "three"]


def test_of_two_turns_with_the_same_cue_the_first_is_played_first() -> None:
    player = playing(ScriptedTurn(text="one", when="a"), ScriptedTurn(text="two", when="a"))

    assert said(player, "a", "a") == ["one", "two"]


def test_a_cue_may_stand_in_a_tool_result() -> None:
    result: Json = {"type": "tool_result", "tool_use_id": "t", "content": [text("the file is empty")]}
    player = playing(ScriptedTurn(text="no"), ScriptedTurn(text="I see", when="is empty"))

    assert player.turn_for(asking(user("go"), assistant(), user([result]))).text == "I see"


def test_a_cue_in_an_earlier_message_does_not_count() -> None:
    player = playing(ScriptedTurn(text="late", when="early"), ScriptedTurn(text="now"))

    assert player.turn_for(asking(user("early"), assistant(text("a")), user("later"))).text == "now"


@pytest.mark.parametrize("turns", [[], [ScriptedTurn(text="one")]])
def test_a_call_after_the_last_turn_fails(turns: list[ScriptedTurn]) -> None:
    player = playing(*turns)
    said(player, *["x"] * len(turns))

    with pytest.raises(ModelError) as raised:
        player.turn_for(asking(user("x")))

    assert vars(raised.value) == problem("the script has no turns left", kind="script_over")


def test_a_script_may_repeat_its_last_turn() -> None:
    player = playing(ScriptedTurn(text="one"), ScriptedTurn(text="two"), at_end="repeat")

    assert said(player, "a", "b", "c", "d") == ["one", "two", "two", "two"]


def test_a_script_of_cues_has_nothing_to_repeat() -> None:
    with pytest.raises(ModelError, match="no turns left"):
        said(playing(ScriptedTurn(text="one", when="x"), at_end="repeat"), "a")


def test_thinking_text_and_calls_come_in_that_order() -> None:
    turn = ScriptedTurn(
        tools=[ScriptedCall(name="Read", input={"a": 1}), ScriptedCall(name="Bash", id="t9")],
        text="Look.",
        thinking="Hm.",
        usage={"output_tokens": 7},
    )

    assert message(turn) == {
        "id": "msg_id2",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2NyaXB0ZWQ="},
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "toolu_id1", "name": "Read", "input": {"a": 1}},
            {"type": "tool_use", "id": "t9", "name": "Bash", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 7,
            "service_tier": "standard",
        },
    }


def test_blocks_are_said_as_they_stand_with_what_was_left_out() -> None:
    turn = ScriptedTurn(
        text="not said",
        blocks=[
            {"type": "tool_use", "name": "Read"},
            {"type": "thinking", "thinking": "Hm."},
            {"type": "hologram", "data": 1},
        ],
    )

    assert message(turn)["content"] == [
        {"type": "tool_use", "name": "Read", "id": "toolu_id1", "input": {}},
        {"signature": "c2NyaXB0ZWQ=", "type": "thinking", "thinking": "Hm."},
        {"type": "hologram", "data": 1},
    ]


def test_an_empty_turn_is_an_empty_message_of_one_token() -> None:
    made = message(ScriptedTurn(), prompt_chars=0)

    assert (made["content"], made["usage"]["input_tokens"], made["usage"]["output_tokens"]) == ([], 1, 1)


@pytest.mark.parametrize("status", [None, 401, 408, 409, 429, 500, 503, 529])
def test_a_passing_fault_may_be_tried_again(status: int | None) -> None:
    fault = ScriptedError(status=status, type="t", message="m", retry_after_seconds=2)

    assert vars(fault.to_error()) == problem("m", status=status, kind="t", retryable=True, retry_after_seconds=2)


@pytest.mark.parametrize("status", [400, 403, 404, 413])
def test_a_lasting_fault_is_final(status: int) -> None:
    assert vars(ScriptedError(status=status).to_error()) == problem("scripted error", status=status, kind="api_error")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], ""),
        ([assistant(text("a"))], ""),
        ([user("a"), assistant(text("b"))], "a"),
        ([user("a"), user([text("b"), text("c")])], "b\nc"),
        ([user([{"type": "image", "source": {}}, text("c")])], "\nc"),
        ([user([{"type": "tool_result", "content": "r"}, {"type": "tool_result"}])], "r\n"),
    ],
)
def test_the_last_text_is_all_text_of_the_last_user_message(messages: list[Json], expected: str) -> None:
    assert last_text(messages) == expected


def test_a_script_may_be_written_in_python() -> None:
    look = call("Bash", command="ls")
    written = Script(["Hi.", look, ["I will look.", look], ScriptedTurn(text="Done.", delay_ms=1)], at_end="repeat")

    assert written.turn == [
        ScriptedTurn(text="Hi."),
        ScriptedTurn(tools=[look]),
        ScriptedTurn(text="I will look.", tools=[look]),
        ScriptedTurn(text="Done.", delay_ms=1),
    ]
    assert read_script(written.to_json().decode(), "it") == written


def test_parts_of_a_turn_keep_their_order() -> None:
    [turn] = Script([[call("Bash", command="ls"), "Called.", "Twice."]]).turn

    assert turn.blocks == [
        {"type": "tool_use", "id": None, "name": "Bash", "input": {"command": "ls"}},
        {"type": "text", "text": "Called."},
        {"type": "text", "text": "Twice."},
    ]


@pytest.mark.parametrize(
    ("turns", "words"),
    [("Hi.", "a list of turns, not str"), ([5], "must be a text"), ([["Hi.", 5]], "must be a text")],
)
def test_what_is_not_a_turn_is_refused(turns: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Script(turns)


def test_an_unknown_end_is_refused() -> None:
    end: Any = "loop"
    with pytest.raises(ValueError, match="at_end must be 'error' or 'repeat', not 'loop'"):
        Script([], at_end=end)
