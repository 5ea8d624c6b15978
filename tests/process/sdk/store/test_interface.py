"""Sessions in a program's own store: mirrored while they run, read, changed, and resumed on another machine."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from parley import (
    Client,
    InMemorySessionStore,
    MirrorErrorMessage,
    Options,
    ResultMessage,
    delete_session_via_store,
    fork_session_via_store,
    get_session_info,
    get_session_info_from_store,
    get_session_messages,
    get_session_messages_from_store,
    get_subagent_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    list_subagents_from_store,
    query,
    rename_session_via_store,
    tag_session_via_store,
)
from tests.helpers.sdk import HELLO, ClientHarness, run
from tests.process.sdk.test_sessions import AGENT, UNKNOWN


class Counting(InMemorySessionStore):
    """The keys that were loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[Any] = []

    async def load(self, key: Any) -> Any:
        self.loaded.append(key)
        return await super().load(key)


async def talked(options: Options, prompt: str = "First things first") -> str:
    async with Client(options) as client:
        await (await client.ask(prompt))
        assert client.session_id is not None
        return client.session_id


@pytest.mark.parametrize("flush", ["batched", "eager"])
def test_a_store_has_what_the_disk_has(harness: ClientHarness, engine: str, flush: str) -> None:
    store = InMemorySessionStore()
    options = harness.options(
        engine, AGENT, permission_mode="bypassPermissions", session_store=store, session_store_flush=flush
    )
    folder, env = str(options.cwd), options.env

    async def play() -> None:
        session = await talked(options)
        kept = await get_session_messages_from_store(store, session, folder)
        assert kept == get_session_messages(session, folder, env=env) != []
        info = await get_session_info_from_store(store, session, folder)
        on_disk = get_session_info(session, folder, env=env)
        assert info is not None
        assert on_disk is not None
        assert (info.summary, info.cwd, info.created_at) == (on_disk.summary, on_disk.cwd, on_disk.created_at)
        [agent] = await list_subagents_from_store(store, session, folder)
        assert "look" in str((await get_subagent_messages_from_store(store, session, agent, folder))[0].message)

    run("asyncio", play)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_session_continues_from_a_store_where_the_disk_is_empty(
    harness: ClientHarness, engine: str, loop: str
) -> None:
    store = InMemorySessionStore()

    async def play() -> tuple[str, str, list[str]]:
        first = await talked(harness.options(engine, session_store=store))
        elsewhere = harness.options(engine, session_store=store, resume=first)
        elsewhere.env["CLAUDE_CONFIG_DIR"] = str(harness.folder / "another machine")
        again = await talked(elsewhere, "and then")
        third = harness.options(engine, session_store=store, continue_conversation=True)
        third.env["CLAUDE_CONFIG_DIR"] = str(harness.folder / "a third")
        await talked(third, "and at last")
        said = await get_session_messages_from_store(store, first, str(elsewhere.cwd))
        return first, again, [one.message["content"] for one in said if one.type == "user"]

    first, again, said = run(loop, play)

    assert first == again
    assert said == ["First things first", "and then", "and at last"]
    assert not (harness.folder / "another machine" / "projects").exists()


def test_lists_need_not_read_what_has_a_summary(harness: ClientHarness) -> None:
    store = Counting()
    options = harness.options("local", session_store=store)
    folder = str(options.cwd)

    async def play() -> None:
        first, second = await talked(options), await talked(options)
        await rename_session_via_store(store, first, "A name", folder)
        await tag_session_via_store(store, first, "keep", folder)
        store.loaded.clear()
        listed = await list_sessions_from_store(store, folder)
        assert [(one.session_id, one.summary, one.tag) for one in listed] == [
            (first, "A name", "keep"),
            (second, "First things first", None),
        ]
        assert await list_sessions_from_store(store, folder, limit=1, offset=1) == listed[1:]
        assert store.loaded == []
        store._summaries.clear()
        assert [one.summary for one in await list_sessions_from_store(store, folder)] == [
            "A name",
            "First things first",
        ]
        await delete_session_via_store(store, first, folder)
        assert [one.session_id for one in await list_sessions_from_store(store, folder)] == [second]

    run("asyncio", play)


def test_a_fork_has_new_ids_and_continues(harness: ClientHarness) -> None:
    store = InMemorySessionStore()
    options = harness.options("local", session_store=store)
    folder = str(options.cwd)

    async def play() -> None:
        session = await talked(options)
        [prompt, *_] = await get_session_messages_from_store(store, session, folder)
        whole = (await fork_session_via_store(store, session, folder)).session_id
        part = (await fork_session_via_store(store, session, folder, prompt.uuid, "A part")).session_id
        assert len(await get_session_messages_from_store(store, part, folder)) == 1
        copied = await get_session_messages_from_store(store, whole, folder)
        assert [one.message for one in copied] == [
            one.message for one in await get_session_messages_from_store(store, session, folder)
        ]
        assert copied[0].uuid != prompt.uuid
        info = await get_session_info_from_store(store, whole, folder)
        assert info is not None
        assert info.custom_title == "First things first (fork)"
        assert await talked(harness.options("local", session_store=store, resume=whole), "on") == whole

    run("asyncio", play)


def test_a_session_on_disk_is_brought_into_a_store(harness: ClientHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemorySessionStore()
    options = harness.options("local", AGENT, permission_mode="bypassPermissions")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", options.env["CLAUDE_CONFIG_DIR"])
    folder = str(options.cwd)

    async def play() -> None:
        session = await talked(options)
        await import_session_to_store(session, store, directory=folder, batch_size=2)
        await import_session_to_store(session, store, directory=folder)
        kept = await get_session_messages_from_store(store, session, folder)
        assert kept == get_session_messages(session, folder)
        assert len(await list_subagents_from_store(store, session, folder)) == 1

    run("asyncio", play)


class Broken(InMemorySessionStore):
    async def append(self, key: Any, entries: list[Any]) -> None:
        raise OSError("the store is full")


async def of_query(options: Options) -> list[Any]:
    return [message async for message in query(prompt="Hi", options=options)]


async def of_response(options: Options) -> list[Any]:
    async with Client(options) as client:
        await client.query("Hi")
        return [message async for message in client.receive_response()]


async def of_ask(options: Options) -> list[Any]:
    async with Client(options) as client:
        return [message async for message in await client.ask("Hi")]


@pytest.mark.parametrize("turn", [of_query, of_response, of_ask])
def test_a_store_that_fails_is_reported_and_harms_nothing(
    harness: ClientHarness, engine: str, turn: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("parley.sdk.store.mirror.PAUSES_SECONDS", (0.0, 0.0))

    told = run("asyncio", turn, harness.options(engine, HELLO, session_store=Broken()))

    [end] = [place for place, one in enumerate(told) if isinstance(one, ResultMessage)]
    errors = [one for one in told[:end] if isinstance(one, MirrorErrorMessage)]
    assert errors
    assert {one.error for one in errors} == {"the store is full"}
    assert errors[0].key is not None
    assert "the store is full" in caplog.text


class Slow(InMemorySessionStore):
    """A store that blocks until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.let = anyio.Event()
        self.waits = anyio.Event()

    async def append(self, key: Any, entries: list[Any]) -> None:
        self.waits.set()
        await self.let.wait()
        await super().append(key, entries)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_result_waits_for_the_store(harness: ClientHarness, engine: str, loop: str) -> None:
    async def play() -> None:
        store = Slow()
        options = harness.options(engine, HELLO, session_store=store)
        async with Client(options) as client:
            turn = await client.ask("Hi")
            await store.waits.wait()
            assert turn.result is None
            store.let.set()
            result = await turn
            assert result is not None
            assert await get_session_messages_from_store(store, result.session_id, str(options.cwd))

    run(loop, play)


def test_what_is_not_a_store_is_refused(harness: ClientHarness) -> None:
    with pytest.raises(TypeError, match="object has no append"):
        run("asyncio", of_query, harness.options("local", session_store=object()))


def test_an_invalid_session_is_refused(harness: ClientHarness) -> None:
    store = InMemorySessionStore()

    async def play() -> None:
        for change in (rename_session_via_store(store, "x", "t"), tag_session_via_store(store, "x", "t")):
            with pytest.raises(ValueError, match="invalid session id"):
                await change
        with pytest.raises(FileNotFoundError):
            await fork_session_via_store(store, UNKNOWN)
        assert await get_session_info_from_store(store, "x") is None
        assert await get_session_messages_from_store(store, UNKNOWN) == []

    run("asyncio", play)
