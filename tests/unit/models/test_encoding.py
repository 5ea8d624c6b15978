"""Encoding conversations that grow."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from parley.models.base import SettledMessages
from parley.models.encoding import CONVERSATIONS, PrefixEncoder, encode_object
from parley.protocol.base import Json

ITEMS: list[Json] = [{"number": number, "text": "é" * number} for number in range(8)]


@given(st.lists(st.lists(st.sampled_from(ITEMS), max_size=8), max_size=20))
def test_the_json_is_that_of_the_items(requests: list[list[Json]]) -> None:
    encoder = PrefixEncoder()

    for items in requests:
        assert b"[%b]" % bytes(encoder.encode(items)) == msgspec.json.encode(items)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=20))
def test_settled_items_are_those_of_their_origin(requests: list[tuple[int, int]]) -> None:
    """Other lists, with the same first item, may come between two of the same origin."""
    encoder, origin = PrefixEncoder(), object()
    other = [ITEMS[0], *reversed(ITEMS[1:])]

    for settled, more in requests:
        items = SettledMessages([*ITEMS[:settled], *ITEMS[:more]], origin, settled)
        assert b"[%b]" % bytes(encoder.encode(items)) == msgspec.json.encode(items)
        if more == 3:
            assert b"[%b]" % bytes(encoder.encode(other)) == msgspec.json.encode(other)


def test_only_new_items_are_encoded() -> None:
    converted: list[int] = []

    def convert(item: Json) -> list[Json]:
        converted.append(item["number"])
        return [item]

    encoder = PrefixEncoder(convert)
    encoder.encode(ITEMS[:4])
    encoder.encode([*ITEMS[:3], ITEMS[5], ITEMS[6]])
    encoder.encode([*ITEMS[:3], ITEMS[5], ITEMS[6], ITEMS[7]])

    assert converted == [0, 1, 2, 3, 5, 6, 7]


def test_an_item_may_become_none_or_several() -> None:
    encoder = PrefixEncoder(lambda item: [item] * item["number"])

    for end in (3, 1, 4, 2):
        sent = [item for item in ITEMS[:end] for _ in range(item["number"])]
        assert b"[%b]" % bytes(encoder.encode(ITEMS[:end])) == msgspec.json.encode(sent)


@given(st.lists(st.lists(st.sampled_from(ITEMS), max_size=8), max_size=20))
def test_a_request_that_is_not_sent_yet_is_not_changed_by_the_next(requests: list[list[Json]]) -> None:
    encoder = PrefixEncoder()

    unsent = [encoder.encode(items) for items in requests]

    assert [b"[%b]" % bytes(data) for data in unsent] == [msgspec.json.encode(items) for items in requests]


def test_items_that_are_equal_but_not_the_same_are_encoded_again() -> None:
    encoder = PrefixEncoder()
    encoder.encode([{"a": 1}])

    assert bytes(encoder.encode([{"a": True}])) == b'{"a":true}'


def test_several_conversations_are_remembered() -> None:
    converted: list[int] = []

    def convert(item: Json) -> list[Json]:
        converted.append(item["number"])
        return [item]

    encoder = PrefixEncoder(convert)
    for number in (*range(CONVERSATIONS), *range(CONVERSATIONS)):
        encoder.encode([ITEMS[number]])
    assert converted == [*range(CONVERSATIONS)]

    encoder.encode([ITEMS[CONVERSATIONS]])
    encoder.encode([ITEMS[0]])
    assert converted == [*range(CONVERSATIONS), CONVERSATIONS, 0]


@given(
    st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.lists(st.integers())), min_size=1),
    st.lists(st.sampled_from(ITEMS)),
)
def test_an_object_is_assembled_from_encoded_lists(fields: Json, items: list[Json]) -> None:
    for name in fields:
        body = fields | {name: items}
        assert b"".join(encode_object(body, {name: [PrefixEncoder().encode(items)]})) == msgspec.json.encode(body)
        parts = [PrefixEncoder().encode(part) for part in (items[:1], items[1:2], items[2:])]
        assert b"".join(encode_object(body, {name: parts})) == msgspec.json.encode(body)


@given(st.lists(st.lists(st.sampled_from(ITEMS), max_size=8), max_size=20))
def test_the_names_are_those_in_the_items(requests: list[list[Json]]) -> None:
    encoder = PrefixEncoder(collect=lambda item: [str(item["number"] // 2), "all"])

    for items in filter(None, requests):
        encoder.encode(items)
        assert encoder.list_names() == {str(item["number"] // 2) for item in items} | {"all"}
