"""The model that plays a script file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.models.accumulator import MessageAccumulator
from parley.models.event_synthesis import event_objects, message_json, synthesize_events
from parley.models.fakes import GREETING, Offline, Scripted, plan_turn
from parley.models.script import ScriptedCall, ScriptedError, ScriptedTurn, ScriptedWait, add_waits
from parley.protocol.base import Json
from tests.helpers.models import asking, assistant, counting, heard, problem, refusal, text, user

USAGE = "{ input_tokens = 3, output_tokens = 2 }"
COUNTED: Json = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 2,
    "service_tier": "standard",
}


def scripted(folder: Path, script: str) -> Scripted:
    path = folder / "script.toml"
    path.write_text(script, encoding="utf-8")
    return Scripted(path, counting("id"))


async def test_the_turns_of_the_file_are_streamed_one_a_call(tmp_path: Path) -> None:
    model = scripted(
        tmp_path,
        f'[[turn]]\ntext = "Grüße"\nchunk_chars = 2\nusage = {USAGE}\n'
        f'[[turn]]\ntools = [{{ name = "Read" }}]\nusage = {USAGE}\nevent_delay_ms = 0.01\ndelay_ms = 0.01',
    )
    text: Json = {"type": "text", "text": "Grüße"}
    call: Json = {"type": "tool_use", "id": "toolu_id2", "name": "Read", "input": {}}
    first = message_json([text], id="msg_id1", model="m", usage=COUNTED)
    second = message_json([call], id="msg_id3", model="m", usage=COUNTED)

    assert await heard(model, asking(user("a"))) == list(synthesize_events(first, 2))
    assert await heard(model, asking(user("b"))) == list(synthesize_events(second, 40))
    await model.close()


async def test_an_error_turn_raises_its_error(tmp_path: Path) -> None:
    model = scripted(tmp_path, '[[turn]]\nerror = { status = 529, type = "overloaded_error", message = "busy" }')

    assert await refusal(model, asking(user("a"))) == problem(
        "busy", status=529, kind="overloaded_error", retryable=True
    )


async def test_a_script_that_has_ended_is_an_error(tmp_path: Path) -> None:
    assert await refusal(scripted(tmp_path, ""), asking(user("a"))) == problem(
        "the script has no turns left", kind="script_over"
    )


def test_what_comes_before_a_wait_is_sent_before_it() -> None:
    blocks: list[Json] = [
        {"type": "text", "text": "one\ntwo"},
        {"type": "tool_use", "id": "t", "name": "Read", "input": {}},
    ]
    waits = [ScriptedWait(after_chars=3, seconds=1.5), ScriptedWait(after_chars=7, seconds=2.5)]
    events = list(event_objects(message_json(blocks, id="m", model="x", usage={"output_tokens": 1}), 40))
    sent = list(add_waits(events, waits))

    assert [one if isinstance(one, float) else one["type"] for one in sent[:8]] == [
        *("message_start", "content_block_start", "content_block_delta", 1.5, "content_block_delta"),
        *("content_block_stop", 2.5, "content_block_start"),
    ]
    texts = [one["delta"].get("text") for one in sent if not isinstance(one, float) and "delta" in one]
    assert texts[:2] == ["one", "\ntwo"]


@pytest.mark.parametrize("field", ["delay_ms", "event_delay_ms"])
async def test_a_delay_holds_the_first_event_back(tmp_path: Path, field: str) -> None:
    model = scripted(tmp_path, f'[[turn]]\ntext = "late"\n{field} = 3_600_000')

    first = asyncio.ensure_future(heard(model, asking(user("a"))))
    done, _ = await asyncio.wait({first}, timeout=0)
    first.cancel()
    await asyncio.wait({first})
    assert not bool(done)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"

    with pytest.raises(UsageError) as raised:
        Scripted(path, counting())

    assert str(raised.value) == (f"cannot read script {path}: [Errno 2] No such file or directory: '{path}'")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(UsageError, match=r"cannot read script .*script\.toml: 'utf-8' codec"):
        Scripted(path, counting())


def test_a_wrong_script_is_refused_before_the_first_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"invalid script .*script\.toml: .*unknown field `turns`"):
        scripted(tmp_path, "turns = 1")


READ: Json = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}


def result(content: str | list[Json]) -> Json:
    return {"type": "tool_result", "tool_use_id": "t1", "content": content}


def to(prompt: str) -> ScriptedTurn:
    """The answer to a first prompt."""
    return plan_turn([user(prompt)])


@pytest.mark.parametrize(
    ("prompt", "turn"),
    [
        ("say Hello there.", ScriptedTurn(text="Hello there.")),
        ("say one\nsay two", ScriptedTurn(text="one\ntwo")),
        ("think Hm.\nsay Yes.", ScriptedTurn(thinking="Hm.", text="Yes.")),
        ("think a\nthink b", ScriptedTurn(thinking="a\nb", text="Done.")),
        ('call Read {"file_path": "a"}', ScriptedTurn(tools=[ScriptedCall(name="Read", input={"file_path": "a"})])),
        ("call Read", ScriptedTurn(tools=[ScriptedCall(name="Read", input={})])),
        ("call A {}\ncall B {}", ScriptedTurn(tools=[ScriptedCall(name="A"), ScriptedCall(name="B")])),
        ("say Look.\ncall A", ScriptedTurn(text="Look.", tools=[ScriptedCall(name="A")])),
        ("show", ScriptedTurn(text="(no tool results yet)")),
        ("wait 1.5\nsay late", ScriptedTurn(text="late", delay_ms=1500)),
        (
            "say one\nwait 1.5\nsay two",
            ScriptedTurn(text="one\ntwo", waits=[ScriptedWait(after_chars=3, seconds=1.5)]),
        ),
        ("wait 1\nwait 2", ScriptedTurn(text="Done.", delay_ms=3000)),
        ("fail 529 busy", ScriptedTurn(error=ScriptedError(status=529, type="overloaded_error", message="busy"))),
        (
            "fail 401",
            ScriptedTurn(
                error=ScriptedError(
                    status=401, type="authentication_error", message="the prompt requested this failure"
                )
            ),
        ),
        (
            "fail 403",
            ScriptedTurn(
                error=ScriptedError(status=403, type="permission_error", message="the prompt requested this failure")
            ),
        ),
        (
            "fail 429",
            ScriptedTurn(
                error=ScriptedError(status=429, type="rate_limit_error", message="the prompt requested this failure")
            ),
        ),
        ("fail 418 tea", ScriptedTurn(error=ScriptedError(status=418, type="api_error", message="tea"))),
        (
            "wait 2\nsay never said\nfail 500",
            ScriptedTurn(error=ScriptedError(status=500, message="the prompt requested this failure"), delay_ms=2000),
        ),
        ("  say   with spaces  ", ScriptedTurn(text="with spaces")),
        ("Dear puppet,\nsay Hi.\nThank you.", ScriptedTurn(text="Hi.")),
    ],
)
def test_each_directive_does_what_it_says(prompt: str, turn: ScriptedTurn) -> None:
    assert to(prompt) == turn


@pytest.mark.parametrize(
    ("prompt", "turn"),
    [
        ('call Read {"broken": ', ScriptedTurn(tools=[ScriptedCall(name="Read", input='{"broken":')])),
        ("call Read [1]", ScriptedTurn(tools=[ScriptedCall(name="Read", input="[1]")])),
        ("wait soon\nsay Hi.", ScriptedTurn(text="Hi.")),
        ("wait -5\nsay Hi.", ScriptedTurn(text="Hi.")),
        ("wait nan\nsay Hi.", ScriptedTurn(text="Hi.")),
        ("fail badly", ScriptedTurn(error=ScriptedError(status=None, message="badly"))),
        ("fail ² times", ScriptedTurn(error=ScriptedError(status=None, message="² times"))),
    ],
)
def test_a_malformed_directive_is_played_as_far_as_it_goes(prompt: str, turn: ScriptedTurn) -> None:
    assert to(prompt) == turn


@pytest.mark.parametrize("prompt", ["What is in this folder?", "", "say", "call", "sayings", "SAY hi", "wait"])
def test_a_prompt_without_directives_is_answered_honestly(prompt: str) -> None:
    assert to(prompt) == ScriptedTurn(text=GREETING + prompt)
    assert GREETING.startswith("This is Parley's offline model: a fake model without key and network.")


def test_a_conversation_without_a_prompt_is_answered_honestly() -> None:
    assert plan_turn([]) == ScriptedTurn(text=GREETING)


def test_the_parts_of_a_prompt_are_played_one_a_call() -> None:
    prompt = user("think Hm.\ncall A\ncall B\nshow\ncall C\nsay Ready.")
    first = assistant({**READ, "name": "A"}, {**READ, "name": "B"})
    results = user([result("a!"), result([text("b!")])])
    second = assistant(text("a!\nb!"), {**READ, "name": "C"})

    assert [
        plan_turn([prompt]),
        plan_turn([prompt, first, results]),
        plan_turn([prompt, first, results, second, user([result("c!")])]),
        plan_turn([prompt, first, results, second, user([result("c!")]), assistant(text("Ready."))]),
    ] == [
        ScriptedTurn(thinking="Hm.", tools=[ScriptedCall(name="A"), ScriptedCall(name="B")]),
        ScriptedTurn(text="a!\nb!", tools=[ScriptedCall(name="C")]),
        ScriptedTurn(text="Ready."),
        ScriptedTurn(text="Done."),
    ]


def test_what_follows_a_failure_is_a_part_of_its_own() -> None:
    prompt = user("fail 500\nsay Recovered.")

    assert plan_turn([prompt, assistant(text("x"))]) == ScriptedTurn(text="Recovered.")


def test_show_repeats_only_what_came_after_the_prompt() -> None:
    before = [user("call A"), assistant(READ), user([result("old")]), assistant(text("Done."))]

    assert plan_turn([*before, user("show")]) == ScriptedTurn(text="(no tool results yet)")


def test_directives_in_a_tool_result_are_not_followed() -> None:
    assert plan_turn([user("call A"), assistant(READ), user([result("say Gotcha.\ncall Evil")])]) == ScriptedTurn(
        text="Done."
    )


def test_the_next_prompt_counts_also_where_it_stands_after_tool_results() -> None:
    stopped = [user("call A\nsay Never."), assistant(READ)]

    assert plan_turn([*stopped, user([result("a"), text("[Request interrupted by user]"), text("say Next.")])]) == (
        ScriptedTurn(text="Next.")
    )


def test_a_prompt_that_failed_is_not_played_again_with_the_next_one() -> None:
    assert plan_turn([user([text("fail 500"), text("say Next.")])]) == ScriptedTurn(text="Next.")


def test_a_prompt_of_an_image_alone_is_answered_honestly() -> None:
    assert plan_turn([user("say a"), assistant(text("a")), user([{"type": "image", "source": {}}])]) == (
        ScriptedTurn(text=GREETING)
    )


async def test_the_answer_comes_as_a_stream() -> None:
    growing = MessageAccumulator()
    model = Offline(counting("id"))
    for event in await heard(model, asking(user('say Look.\ncall Read {"a": 1}'), model="offline")):
        growing.feed(event)

    assert (growing.id, growing.model, growing.stop_reason, growing.finished) == (
        "msg_id2",
        "offline",
        "tool_use",
        True,
    )
    assert [block.json for block in growing.blocks] == [
        text("Look."),
        {"type": "tool_use", "id": "toolu_id1", "name": "Read", "input": {"a": 1}},
    ]
    await model.close()


async def test_a_failure_comes_as_the_api_would_tell_it() -> None:
    assert await refusal(Offline(counting()), asking(user("fail 404 no such thing"))) == problem(
        "no such thing", status=404, kind="api_error"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<mcp-server name='git'>\nThe MCP server 'git' is not there.\n</mcp-server>",
        "<deferred-tools>\nThese tools exist.\n</deferred-tools>",
    ],
)
def test_what_the_engine_adds_for_the_model_is_not_a_prompt(text: str) -> None:
    note = {"type": "text", "text": text}
    asked = {"role": "user", "content": [{"type": "text", "text": "say Hi."}, note]}

    assert plan_turn([asked]).text == "Hi."
    assert plan_turn([{"role": "user", "content": "say Hi."}, {"role": "user", "content": [note]}]).text == "Hi."
