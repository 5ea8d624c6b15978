"""The transcripts of an engine in a cluster: a store like any other, whose changes are records of the session's log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parley.cluster.session_log import EngineStore
from parley.errors import SessionError
from tests.helpers.store_conformance import FIRST, Place, every_claim, user


@every_claim
def test_the_store_of_an_engine_keeps_the_promises_of_a_store(claim: Callable[[Place], None]) -> None:
    store = EngineStore({}, [], "/nowhere/project")

    claim(Place(lambda: store))


def test_a_store_that_was_closed_takes_nothing_more() -> None:
    store = EngineStore({}, [])
    log = store.create(FIRST)
    log.append(user(0, "one"))
    store.close()

    with pytest.raises(SessionError, match="moves to another host"):
        log.append(user(1, "two"))
    assert list(log.entries()) == [user(0, "one")]
