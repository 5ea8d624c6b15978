"""Detecting and dropping the optional field that an error rejects."""

from __future__ import annotations

import pytest

from parley.errors import ModelError
from parley.models.backends.base import UnsupportedFields, find_rejected_field

SENT = ("new-beta-1", "anthropic-beta", "thinking", "output_config", "cache_control")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("output_config: Extra inputs are not permitted", "output_config"),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control"),
        ("Unexpected value(s) `new-beta-1` for the `anthropic-beta` header", "new-beta-1"),
        ("the anthropic-beta header is not supported", "anthropic-beta"),
        ("Unrecognized request argument supplied: thinking", "thinking"),
        ("this model does not support thinking", "thinking"),
        ("bad thing", None),
        ("metadata: Extra inputs are not permitted", None),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", None),
        ("rethinking is not supported", None),
    ],
)
def test_the_field_that_is_named_is_blamed(words: str, name: str | None) -> None:
    assert find_rejected_field(ModelError(words, status=400), SENT) == name


@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_request_that_cannot_be_validated_is_a_bad_one_under_any_of_its_names(status: int) -> None:
    words = "[{'type': 'extra_forbidden', 'loc': ('body', 'thinking'), 'msg': 'Extra inputs are not permitted'}]"

    assert find_rejected_field(ModelError(words, status=status), SENT) == "thinking"


@pytest.mark.parametrize("status", [None, 401, 404, 503])
def test_only_a_bad_request_is_the_fault_of_a_field(status: int | None) -> None:
    assert find_rejected_field(ModelError("thinking is not supported", status=status), SENT) is None


def test_a_field_that_is_blamed_is_dropped_and_reported() -> None:
    told: list[str] = []
    dropped = UnsupportedFields(told.append, ["metadata"])

    dropped.record(ModelError("thinking is not supported", status=400), SENT)

    assert dropped.names == {"metadata", "thinking"}
    assert told == [
        "warning: the model's server rejected the field 'thinking' (thinking is not supported); it is not sent again"
    ]


def test_any_other_error_is_raised_and_nothing_is_dropped() -> None:
    told: list[str] = []
    dropped, problem = UnsupportedFields(told.append), ModelError("bad thing", status=400)

    with pytest.raises(ModelError) as raised:
        dropped.record(problem, SENT)

    assert raised.value is problem
    assert (dropped.names, told) == (set(), [])
