"""The model that plays a script file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.models.event_synthesis import message_json, synthesize_events
from parley.models.fake.scripted import Scripted
from parley.protocol.base import Json
from tests.helpers.models import asking, counting, heard, problem, refusal, user

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
