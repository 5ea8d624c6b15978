"""Whatever a tool gives, it can be kept, told and sent."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as some

from parley.protocol.base import encode_json, sanitize
from tests.helpers.session import Json, SessionHarness


def nested(inner: some.SearchStrategy[object]) -> some.SearchStrategy[object]:
    return some.lists(inner) | some.dictionaries(some.text(), inner)


@given(some.recursive(some.text(some.characters()), nested))
def test_what_is_sanitized_can_be_spelled(value: object) -> None:
    assert "\0" not in repr(json.loads(encode_json(sanitize(value))))


def test_what_is_fit_stays_as_it_is() -> None:
    value = {"a": ["Grüße 🙂\n\t", 1, None, True]}

    assert sanitize(value) == value


async def test_bytes_that_are_not_text_do_not_spoil_a_session(tmp_path: Path) -> None:
    command = r"printf 'a\\000b\\355\\240\\200\\377c'"
    script = f'[[turn]]\ntools = [{{ name = \'Bash\', id = \'t1\', input = {{ command = """{command}""" }} }}]\n'
    async with SessionHarness(
        tmp_path, script + "[[turn]]\ntext = 'On.'\n", permission_mode="bypassPermissions"
    ) as harness:
        harness.prompt("go")
        assert (await harness.receive("result"))["result"] == "On."
        messages: list[Json] = harness.session.journal.history.render()
        result = messages

    told = result[2]["content"][0]["content"]
    assert told.startswith("a\ufffdb\ufffd")
    assert told.endswith("c")
    assert encode_json(told)
