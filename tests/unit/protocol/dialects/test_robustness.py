"""Whatever comes in, and whatever the engine says: no dialect falls over it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol.base import decode
from parley.protocol.dialects.base import Dialect, DialectContext
from parley.protocol.dialects.jsonrpc import JsonRpcDialect
from parley.protocol.dialects.miriad import Miriad
from parley.protocol.messages.dialects import SessionOpened
from tests.helpers.dialects import heard, replies, world
from tests.helpers.golden import CATALOGUE, LINES, Sample, each

DIALECTS: list[Callable[[DialectContext], Dialect]] = [Miriad, JsonRpcDialect]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MIRIAD_KEYS = ("type", "action", "message", "session_id", "uuid", "environment", "mcp_servers", "system_prompt")
KEYS = st.sampled_from([*MIRIAD_KEYS, "jsonrpc", "id", "method", "params"])


@pytest.mark.parametrize("dialect", DIALECTS)
@given(line=st.binary(max_size=60))
def test_any_bytes_are_decoded(dialect: Callable[[DialectContext], Dialect], line: bytes) -> None:
    assert heard(dialect(world()), line)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(changes=st.dictionaries(KEYS, VALUES, max_size=4), sample=st.sampled_from(LINES))
def test_a_line_with_any_fields_is_decoded_and_answers_are_json(
    dialect: Callable[[DialectContext], Dialect], changes: dict[str, object], sample: Sample
) -> None:
    messages = heard(dialect(world()), {**sample.json, **changes})

    assert messages
    assert all(isinstance(line, dict) for line in replies(messages))


@pytest.mark.parametrize("dialect", DIALECTS)
@each(CATALOGUE)
def test_whatever_the_engine_says_is_spelled_or_left_out(
    dialect: Callable[[DialectContext], Dialect], sample: Sample
) -> None:
    spoken = dialect(world())
    spoken.encode(SessionOpened(session_id="own"))

    for line in spoken.encode(decode(sample.line)):
        assert isinstance(json.loads(line), dict)
        assert b"\n" not in line
