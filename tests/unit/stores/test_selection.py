"""Which store is meant."""

from __future__ import annotations

import pytest

from parley.errors import UsageError
from parley.protocol.options import CliOptions
from parley.stores.selection import StoreChoice, choose, has_password, parse


@pytest.mark.parametrize(
    ("options", "environment", "chosen"),
    [
        ({}, {}, None),
        ({"store": "folder"}, {}, StoreChoice("folder")),
        ({"store": "folder:/var/x:y"}, {}, StoreChoice("folder", "/var/x:y")),
        ({"database": "a.db"}, {"PARLEY_STORE": "folder"}, StoreChoice("sqlite", "a.db")),
        ({"store": "claude"}, {"PARLEY_STORE": "folder"}, StoreChoice("claude")),
        ({}, {"PARLEY_STORE": "sqlite:a.db"}, StoreChoice("sqlite", "a.db")),
        ({"store": "postgres://h/d"}, {}, StoreChoice("postgres", "postgres://h/d")),
        ({"store": "postgresql://h/d"}, {}, StoreChoice("postgres", "postgresql://h/d")),
        ({"store": "folder", "no_session_persistence": True}, {}, StoreChoice("memory")),
        ({"store": "folder", "no_session_persistence": True, "resume": "x"}, {}, StoreChoice("folder")),
    ],
)
def test_a_store_is_named_by_an_option_or_a_variable(
    options: dict[str, object], environment: dict[str, str], chosen: StoreChoice | None
) -> None:
    assert choose(CliOptions(**options), environment) == chosen


def test_two_places_at_once_are_one_too_many() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        choose(CliOptions(store="folder", database="a.db"), {})


@pytest.mark.parametrize("named", ["sqlite", "sqlite:", "postgres", "postgres:db"])
def test_a_store_without_a_place_of_its_own_must_be_given_one(named: str) -> None:
    with pytest.raises(UsageError, match="needs a location: write"):
        parse(named)


@pytest.mark.parametrize(
    ("named", "shows"),
    [
        ("postgres://me:secret@host/db", True),
        ("postgres://me@host:5432/db", False),
        ("postgres://host:5432/db", False),
        ("folder:/a:b@c", False),
    ],
)
def test_an_address_with_a_password_is_known(named: str, shows: bool) -> None:
    assert has_password(named) is shows
