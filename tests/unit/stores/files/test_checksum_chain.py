"""Checksums: what follows on, what is skipped, and what shows a hole."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.stores.files.checksum_chain import (
    ChainBroken,
    ChecksumChain,
    canonical_bytes,
    find_checksums,
    has_checksum_fields,
    read_checksum,
)

BODIES = [msgspec.json.encode({"number": number, "text": "x" * number}) for number in range(6)]


def chained(bodies: list[bytes]) -> list[bytes]:
    ours, theirs = ChecksumChain(), ChecksumChain()
    records = [ours.append(body) for body in bodies]
    assert all(map(theirs.verify, records))
    assert ours.append(BODIES[0]) == theirs.append(BODIES[0])
    return records


def held(lines: list[bytes]) -> list[bytes]:
    seal = ChecksumChain()
    return [line for line in lines if seal.verify(line)]


def test_a_record_is_json_with_the_checksums_last() -> None:
    first, second = chained(BODIES[:2])

    assert list(msgspec.json.decode(second)) == ["number", "text", "own", "sum", "check"]
    assert read_checksum(first) != read_checksum(second)
    assert read_checksum(BODIES[0]) is None


def test_lines_of_others_may_stand_between_ours() -> None:
    records = chained(BODIES)
    mixed = [line for record in records for line in (record, b'{"type":"custom-title"}', b"{torn", b"")]

    assert held(mixed) == records


def test_a_record_that_was_not_written_is_not_a_part_of_the_chain() -> None:
    seal = ChecksumChain()
    lost = seal.copy().append(BODIES[0])
    kept = seal.append(BODIES[1])

    assert ChecksumChain().verify(kept)
    assert not seal.verify(lost)


@pytest.mark.parametrize("missing", range(4))
def test_a_missing_record_is_a_hole(missing: int) -> None:
    records = chained(BODIES)
    del records[missing]

    with pytest.raises(ChainBroken):
        held(records)


@given(at=st.integers(0, 5), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_an_altered_record_ends_the_chain_before_it(at: int, place: float, bit: int) -> None:
    records = chained(BODIES)
    spoilt = bytearray(records[at])
    spoilt[int(place * len(spoilt))] ^= 1 << bit
    lines = [*records[:at], bytes(spoilt), *records[at + 1 :]]
    seal, good = ChecksumChain(), list[bytes]()
    with suppress(ChainBroken):
        good += (line for line in lines if seal.verify(line))

    # What a record says is certain if only the checksum of its bytes was hit.
    is_certain = summed_up(bytes(spoilt)) == summed_up(records[at])
    assert good == (lines if is_certain else records[:at])


def summed_up(line: bytes) -> tuple[bytes, int] | None:
    found = find_checksums(line)
    return (canonical_bytes(line), found[0]) if found is not None else None


def test_a_record_is_known_by_its_end_whatever_became_of_the_name_of_its_checksum() -> None:
    (record,) = chained(BODIES[:1])

    assert has_checksum_fields(record)
    assert has_checksum_fields(record.replace(b'"sum"', b'"sun"'))
    assert has_checksum_fields(record.replace(b'"check"', b'"chdck"'))
    assert not has_checksum_fields(BODIES[0])
    assert not has_checksum_fields(b'{"type":"user","gitBranch":"deadbeef"}')


def test_records_that_were_written_again_with_other_blanks_and_escapes_are_the_same() -> None:
    records = chained([msgspec.json.encode({"text": text}) for text in ("one", "zwölf €", "three")])
    again = [json.dumps(msgspec.json.decode(record)).encode() for record in records]
    compact = [json.dumps(msgspec.json.decode(record), separators=(",", ":")).encode() for record in records]

    assert (held(again), held(compact), held([records[0], again[1], compact[2]])) == (
        again,
        compact,
        [records[0], again[1], compact[2]],
    )


def test_a_record_that_was_written_again_and_altered_is_damaged() -> None:
    again = [json.dumps(msgspec.json.decode(record)).encode() for record in chained(BODIES[:3])]

    with pytest.raises(ChainBroken):
        held([again[0], again[1].replace(b"x", b"y"), again[2]])


def reordered(value: Any, dice: Random) -> Any:
    """As a database or JavaScript gives it back: fields in any order, numbers of one kind."""
    if isinstance(value, dict):
        return {name: reordered(value[name], dice) for name in dice.sample(list(value), len(value))}
    if isinstance(value, list):
        return [reordered(one, dice) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
SPOKEN = st.lists(st.fixed_dictionaries({"type": st.just("user"), "message": JSON}), min_size=1, max_size=4)


@given(spoken=SPOKEN, seed=st.integers())
def test_records_whose_fields_came_into_another_order_are_the_same(spoken: list[Any], seed: int) -> None:
    dice, records = Random(seed), chained([msgspec.json.encode(one) for one in spoken])
    moved = [json.dumps(reordered(msgspec.json.decode(record), dice)).encode() for record in records]
    mixed = [dice.choice(pair) for pair in zip(records, moved, strict=True)]

    assert (held(moved), held(mixed)) == (moved, mixed)


@pytest.mark.parametrize("missing", range(4))
def test_a_missing_record_is_a_hole_in_whatever_order_the_fields_are(missing: int) -> None:
    moved = [json.dumps(msgspec.json.decode(record), sort_keys=True).encode() for record in chained(BODIES)]
    del moved[missing]

    with pytest.raises(ChainBroken):
        held(moved)


@pytest.mark.parametrize("spoilt", [(b'"xx"', b'"xy"'), (b'"number": 2', b'"number": 3'), (b'"text"', b'"next"')])
def test_an_altered_record_is_damaged_in_whatever_order_the_fields_are(spoilt: tuple[bytes, bytes]) -> None:
    moved = [json.dumps(msgspec.json.decode(record), sort_keys=True).encode() for record in chained(BODIES)]
    lines = [moved[0], moved[1], moved[2].replace(*spoilt), *moved[3:]]

    assert lines != moved
    assert held(lines[:3]) == moved[:2]
    with pytest.raises(ChainBroken):
        held(lines)


def test_the_chain_continues_after_records_in_another_order() -> None:
    moved = [json.dumps(msgspec.json.decode(record), sort_keys=True).encode() for record in chained(BODIES[:3])]
    seal = ChecksumChain()
    assert all(map(seal.verify, moved))
    more = seal.append(BODIES[3])

    assert held([*moved, more]) == [*moved, more]
