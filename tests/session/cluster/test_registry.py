"""What every registry does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.cluster.base import ClusterRegistry, RegistryRow
from tests.helpers.cluster_places import ClusterPlace


async def test_a_value_is_what_was_put_last(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        registry = cluster.registry
        assert await registry.get("a.b") is None
        first = await registry.put("a.b", b"1")
        second = await registry.put("a.b", b"\x00\xff")
        assert second > first > 0
        assert await registry.get("a.b") == RegistryRow("a.b", b"\x00\xff", second)
        assert await registry.get("a") is None
        await registry.delete("a.b")
        await registry.delete("a.b")
        assert await registry.get("a.b") is None
    async with place.open() as cluster:
        await cluster.registry.put("tokens.x=2E-_/y", b"")
        assert await cluster.registry.get("tokens.x=2E-_/y") is not None


async def test_a_value_is_updated_only_if_its_revision_is_the_given_one(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        registry = cluster.registry
        first = await registry.update("a", b"1", 0)
        assert first is not None
        assert await registry.update("a", b"2", 0) is None
        second = await registry.update("a", b"2", first)
        assert second is not None
        assert await registry.update("a", b"3", first) is None
        assert await registry.get("a") == RegistryRow("a", b"2", second)
        await registry.delete("a")
        assert await registry.update("a", b"3", second) is None
        assert await registry.update("a", b"3", 0) is not None


async def test_one_of_many_updates_at_the_same_time_succeeds(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        revision = await cluster.registry.put("a", b"")
        found = await asyncio.gather(*(cluster.registry.update("a", b"%d" % number, revision) for number in range(8)))
        assert len([one for one in found if one]) == 1


async def test_rows_are_found_by_a_pattern(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        registry = cluster.registry
        keys = ["hosts.a", "hosts.b", "sessions.1.t.a", "sessions.2.t.a", "config"]
        rows = {key: RegistryRow(key, key.encode(), await registry.put(key, key.encode())) for key in keys}
        await registry.put("hosts.c", b"")
        await registry.delete("hosts.c")
        assert await registry.rows("hosts.*") == [rows["hosts.a"], rows["hosts.b"]]
        assert await registry.rows("sessions.1.>") == [rows["sessions.1.t.a"]]
        assert await registry.rows("sessions.*.t.*") == [rows["sessions.1.t.a"], rows["sessions.2.t.a"]]
        assert await registry.rows("config") == [rows["config"]]
        assert await registry.rows("nothing.>") == []


async def test_a_row_with_a_time_to_live_ends(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        registry = cluster.registry
        watch = registry.watch("hosts.*")
        assert await anext(watch) is None
        short = RegistryRow("hosts.a", b"", await registry.put("hosts.a", b"", 1))
        await registry.put("hosts.b", b"", 1)
        long = RegistryRow("hosts.b", b"", await registry.put("hosts.b", b""))
        # How late the watcher is, and so what it sees between these, depends on the machine.
        seen: list[RegistryRow | str | None] = []
        while long not in seen or "hosts.a" not in seen:
            seen.append(await anext(watch))
        assert "hosts.b" not in seen[seen.index(long) :]
        assert short not in seen[seen.index("hosts.a") :]
        assert await registry.get("hosts.a") is None
        assert await registry.update("hosts.a", b"", 0) is not None
        assert await registry.get("hosts.b") == long
        await watch.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_a_watcher_sees_the_rows_and_then_every_change(place: ClusterPlace) -> None:
    async with place.open() as cluster:
        registry = cluster.registry
        first = RegistryRow("a.1", b"1", await registry.put("a.1", b"1"))
        await registry.put("b", b"")
        watch = registry.watch("a.*")
        assert await anext(watch) == first
        assert await anext(watch) is None

        await registry.put("b", b"2")
        second = RegistryRow("a.2", b"2", await registry.put("a.2", b"2"))
        assert await anext(watch) == second
        third = RegistryRow("a.1", b"3", await registry.put("a.1", b"3"))
        assert await anext(watch) == third
        await registry.delete("a.1")
        assert await anext(watch) == "a.1"
        await watch.aclose()  # type: ignore[attr-defined]  # it is a generator


async def follow(watch: AsyncIterator[RegistryRow | str | None], last: str) -> dict[str, RegistryRow]:
    """What a watcher knows after it has seen a row."""
    known: dict[str, RegistryRow] = {}
    async for change in watch:
        if isinstance(change, RegistryRow):
            known[change.key] = change
            if change.key == last:
                return known
        elif change is not None:
            known.pop(change, None)
    raise AssertionError("the watch has ended")


async def check_random_changes(registry: ClusterRegistry, changes: list[tuple[str, str]]) -> None:
    watch = registry.watch(">")
    following = asyncio.create_task(follow(watch, "end"))
    model: dict[str, RegistryRow] = {}
    for number, (operation, key) in enumerate(changes):
        value = b"%d" % number
        revision: int | None
        match operation:
            case "put":
                model[key] = RegistryRow(key, value, await registry.put(key, value))
            case "update":
                revision = await registry.update(key, value, model[key].revision if key in model else 0)
                assert revision is not None
                model[key] = RegistryRow(key, value, revision)
            case "refused":
                assert await registry.update(key, value, 1 << 40) is None
            case "delete":
                await registry.delete(key)
                model.pop(key, None)
        assert await registry.get(key) == model.get(key)
    model["end"] = RegistryRow("end", b"", await registry.put("end", b""))
    known = await following
    await watch.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert known == model
    for key in model:
        await registry.delete(key)


CHANGES = st.tuples(st.sampled_from(["put", "update", "refused", "delete"]), st.sampled_from(["a", "b", "c.d"]))


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES, min_size=4, max_size=12))
def test_random_changes_have_the_results_of_a_simple_model(place: ClusterPlace, changes: list[tuple[str, str]]) -> None:
    async def run() -> None:
        async with place.open() as cluster:
            await check_random_changes(cluster.registry, changes)

    asyncio.run(run())


@pytest.mark.parametrize("pattern", [">", "a"])
async def test_a_watch_can_be_given_up(place: ClusterPlace, pattern: str) -> None:
    async with place.open() as cluster:
        watch = cluster.registry.watch(pattern)
        assert await anext(watch) is None
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await cluster.registry.put("a", b"")
