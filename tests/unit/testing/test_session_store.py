"""The conformance tests find faulty stores and accept ours."""

from __future__ import annotations

from typing import Any

import pytest

from parley import InMemorySessionStore
from parley.testing import run_session_store_conformance


async def test_our_own_store_keeps_every_contract() -> None:
    await run_session_store_conformance(InMemorySessionStore)


class Least:
    """A store with the required methods only."""

    def __init__(self) -> None:
        self.lines: dict[str, list[Any]] = {}

    async def append(self, key: Any, entries: list[Any]) -> None:
        self.lines.setdefault(str(key), []).extend(entries)

    async def load(self, key: Any) -> list[Any] | None:
        return self.lines.get(str(key))


async def test_the_least_is_enough() -> None:
    await run_session_store_conformance(Least)


class Forgetful(Least):
    async def append(self, key: Any, entries: list[Any]) -> None:
        self.lines[str(key)] = list(entries)


class Mixing(Least):
    async def append(self, key: Any, entries: list[Any]) -> None:
        await super().append({**key, "subpath": None}, entries)

    async def load(self, key: Any) -> list[Any] | None:
        return await super().load({**key, "subpath": None})


@pytest.mark.parametrize(("store", "contract"), [(Forgetful, "order"), (Mixing, "agents are apart")])
async def test_a_store_that_breaks_a_contract_is_reported_with_the_contract(store: type[Least], contract: str) -> None:
    with pytest.raises(AssertionError) as exc:
        await run_session_store_conformance(store)

    assert any(contract in note for note in exc.value.__notes__)


async def test_what_is_needed_cannot_be_skipped() -> None:
    with pytest.raises(ValueError, match="load"):
        await run_session_store_conformance(Least, skip_optional=frozenset({"load"}))
