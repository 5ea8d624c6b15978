"""Checksums: what follows on, what is skipped, and what shows a hole."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.stores.chain import Hole, Seal, checksum, has_shape

BODIES = [msgspec.json.encode({"number": number, "text": "x" * number}) for number in range(6)]


def chained(bodies: list[bytes]) -> list[bytes]:
    seal, records = Seal(), []
    for body in bodies:
        records.append(seal.on(body))
        assert seal.holds(records[-1])
    return records


def held(lines: list[bytes]) -> list[bytes]:
    seal = Seal()
    return [line for line in lines if seal.holds(line)]


def test_a_record_is_json_with_the_checksum_last() -> None:
    first, second = chained(BODIES[:2])

    assert list(msgspec.json.decode(second)) == ["number", "text", "check"]
    assert checksum(first) != checksum(second)
    assert checksum(BODIES[0]) is None


def test_lines_of_others_may_stand_between_ours() -> None:
    records = chained(BODIES)
    mixed = [line for record in records for line in (record, b'{"type":"custom-title"}', b"{torn", b"")]

    assert held(mixed) == records


def test_a_record_that_was_not_written_is_no_part_of_the_chain() -> None:
    seal = Seal()
    lost = seal.on(BODIES[0])
    kept = seal.on(BODIES[1])

    assert seal.holds(kept)
    assert not seal.holds(lost)


@pytest.mark.parametrize("missing", range(4))
def test_a_missing_record_is_a_hole(missing: int) -> None:
    records = chained(BODIES)
    del records[missing]

    with pytest.raises(Hole):
        held(records)


@given(at=st.integers(0, 5), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_an_altered_record_ends_the_chain_before_it(at: int, place: float, bit: int) -> None:
    records = chained(BODIES)
    spoilt = bytearray(records[at])
    spoilt[int(place * len(spoilt))] ^= 1 << bit
    lines = [*records[:at], bytes(spoilt), *records[at + 1 :]]
    seal, good = Seal(), list[bytes]()
    with suppress(Hole):
        good += (line for line in lines if seal.holds(line))

    assert good == records[:at]


def test_a_record_is_known_by_its_end_whatever_became_of_the_name_of_its_checksum() -> None:
    (record,) = chained(BODIES[:1])

    assert has_shape(record)
    assert has_shape(record.replace(b'"check"', b'"chdck"'))
    assert not has_shape(BODIES[0])
    assert not has_shape(b'{"type":"user","gitBranch":"deadbeef"}')


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

    with pytest.raises(Hole):
        held([again[0], again[1].replace(b"x", b"y"), again[2]])
