"""Entries that no one could fold or send are told from those that can."""

from __future__ import annotations

from typing import Any

import pytest

from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.entry_validation import find_problem
from tests.helpers.store_conformance import CONVERSATION


def entry(kind: str, message: Json, **more: Any) -> Entry:
    return Entry(**{"seq": 0, "kind": kind, "at": "", "message": message, **more})


def said(content: Any, **inner: Any) -> Json:
    return {"type": "user", "uuid": "u", "message": {"role": "user", "content": content, **inner}}


SOUND = [
    *CONVERSATION,
    entry("user", said("text")),
    entry("assistant", said([{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}], id="m")),
    entry("user", said([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]}])),
    entry("user", said([{"type": "a_kind_of_tomorrow", "text": None}])),
    entry("system", {"uuid": "u", "compact_metadata": {"preserved_segment": None}}),
    entry("conversation_reset", {"uuid": "u"}),
    entry("title", {"title": "T"}),
    entry("a kind of tomorrow", {}),
]
ODD = [
    entry("user", {}),
    entry("user", {"message": {"content": "text"}}),
    entry("user", {"uuid": "u", "message": "text"}),
    entry("user", said(None)),
    entry("user", said([1])),
    entry("user", said([{}])),
    entry("user", said([{"type": "text", "text": None}])),
    entry("user", said([{"type": "tool_result", "tool_use_id": ["t"]}])),
    entry("user", said([{"type": "tool_result", "tool_use_id": "t", "content": [1]}])),
    entry("assistant", said([{"type": "tool_use"}])),
    entry("assistant", said("text", id=5)),
    entry("system", {"compact_metadata": {}}),
    entry("system", {"uuid": "u", "compact_metadata": [1]}),
    entry("system", {"uuid": "u", "compact_metadata": {"preserved_segment": "x"}}),
    entry("system", {"uuid": "u", "compact_metadata": {"preserved_messages": {"uuids": [[]]}}}),
    entry("conversation_reset", {}),
    entry("title", {"title": [1]}),
    entry("user", said("text"), seq=-1),
    entry("user", said("text"), context={"message": 5}),
]


@pytest.mark.parametrize("sound", SOUND)
def test_what_can_be_folded_and_sent_is_not_odd(sound: Entry) -> None:
    assert find_problem(sound) is None


@pytest.mark.parametrize("odd", ODD)
def test_what_no_one_could_fold_or_send_is_odd(odd: Entry) -> None:
    assert find_problem(odd) is not None
