"""Sessions that end with the process."""

from __future__ import annotations

from collections.abc import Callable

from parley.stores.memory import MemoryStore
from tests.helpers.store_conformance import FIRST, Place, every_claim, user


@every_claim
def test_the_memory_keeps_the_promises_of_a_store(claim: Callable[[Place], None]) -> None:
    store = MemoryStore("/nowhere/project")

    claim(Place(lambda: store))


def test_no_one_can_look_up_a_session_in_memory() -> None:
    store = MemoryStore()
    store.create(FIRST).append(user(0, "Hello"))

    assert store.path(FIRST) == ""
