"""Names as tokens of subjects."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.cluster import subjects
from parley.cluster.base import LogKey

NAMES = st.text(st.characters(exclude_categories=["Cs"]))


@given(NAMES)
def test_a_name_becomes_one_token_and_comes_back(name: str) -> None:
    token = subjects.encode_token(name)

    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert subjects.decode_token(token) == name


@given(NAMES, NAMES, st.integers(1, 4096))
def test_a_session_is_found_by_its_subject(tenant: str, session: str, shards: int) -> None:
    key = LogKey(tenant, session)
    subject = subjects.command_subject("parley", key, shards)

    assert subjects.parse_session_tokens(subject) == key
    assert subjects.matches(subjects.shard_subject("parley", key.shard(shards)), subject)


def test_usual_names_stay_readable() -> None:
    key = LogKey("default", "1f0c-a_B")

    assert subjects.session_tokens(key, 8) == f"{key.shard(8)}.default.1f0c-a_B"
    assert subjects.host_subject("parley", "web 1.example") == "parley.host.web=201=2Eexample"


@pytest.mark.parametrize(
    ("pattern", "subject", "is_match"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("*", "a", True),
        ("*", "a.b", False),
        (">", "a.b", True),
        ("a.>", "a", False),
    ],
)
def test_patterns(pattern: str, subject: str, is_match: bool) -> None:
    assert subjects.matches(pattern, subject) is is_match
