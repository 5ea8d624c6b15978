"""Conformance tests for session stores.

    await run_session_store_conformance(MyStore)

Each check gets a new store. Checks for optional methods that a store does not have are skipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

Make = Callable[[], Any]
OPTIONAL = frozenset({"list_sessions", "list_session_summaries", "delete", "list_subkeys"})
KEY = {"project_key": "-srv-app", "session_id": "00000000-0000-4000-8000-000000000001"}
OTHER = {**KEY, "session_id": "00000000-0000-4000-8000-000000000002"}
ELSEWHERE = {**KEY, "project_key": "-srv-other"}
AGENT = {**KEY, "subpath": "subagents/agent-a1"}


def line(number: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "timestamp": "2026-01-02T03:04:05Z",
        **more,
    }


async def what_is_appended_is_loaded(store: Any) -> None:
    entries = [line(1, message={"role": "user", "content": "é\u2028\n"}, deep={"a": [1, None, True, 1.5]}), line(2)]
    await store.append(KEY, entries)
    assert await store.load(KEY) == entries, "a loaded entry differs from the appended one"


async def what_was_never_written_is_none(store: Any) -> None:
    assert await store.load(KEY) is None, "a key that was never written must load as None"


async def appends_stay_in_their_order(store: Any) -> None:
    for number in range(5):
        await store.append(KEY, [line(2 * number), line(2 * number + 1)])
    loaded = await store.load(KEY)
    assert [one["uuid"] for one in loaded] == [line(number)["uuid"] for number in range(10)], (
        "entries are not in the order of appending"
    )


async def an_empty_append_makes_no_session(store: Any) -> None:
    await store.append(KEY, [])
    assert not await store.load(KEY), "an empty append must not create entries"


async def lines_without_an_id_are_all_kept(store: Any) -> None:
    title = {"type": "custom-title", "customTitle": "t"}
    await store.append(KEY, [title])
    await store.append(KEY, [title])
    assert await store.load(KEY) == [title, title], "entries without a uuid must not be treated as duplicates"


async def sessions_are_apart(store: Any) -> None:
    await store.append(KEY, [line(1)])
    await store.append(OTHER, [line(2)])
    assert (await store.load(KEY), await store.load(OTHER)) == ([line(1)], [line(2)]), (
        "entries of two sessions are mixed"
    )


async def projects_are_apart(store: Any) -> None:
    await store.append(KEY, [line(1)])
    assert await store.load(ELSEWHERE) is None, "a session is visible in another project"


async def agents_are_apart_from_their_session(store: Any) -> None:
    await store.append(KEY, [line(1)])
    await store.append(AGENT, [line(2)])
    assert (await store.load(KEY), await store.load(AGENT)) == ([line(1)], [line(2)]), (
        "entries of an agent are mixed into its session"
    )


async def a_list_has_the_sessions_of_a_project(store: Any) -> None:
    await store.append(KEY, [line(1)])
    await store.append(ELSEWHERE, [line(2)])
    await store.append(AGENT, [line(3)])
    listed = await store.list_sessions(KEY["project_key"])
    assert [one["session_id"] for one in listed] == [KEY["session_id"]], "the list contains other sessions or agents"


async def a_list_tells_milliseconds(store: Any) -> None:
    await store.append(KEY, [line(1)])
    [one] = await store.list_sessions(KEY["project_key"])
    assert isinstance(one["mtime"], int), "mtime must be an integer"
    assert one["mtime"] > 1_000_000_000_000, "mtime must be in milliseconds since 1970"


async def summaries_follow_their_sessions(store: Any) -> None:
    await store.append(KEY, [line(1, message={"role": "user", "content": "first"}, cwd="/srv/app")])
    await store.append(AGENT, [line(2)])
    await store.append(KEY, [{"type": "custom-title", "customTitle": "A title"}])
    [summary] = await store.list_session_summaries(KEY["project_key"])
    assert summary["session_id"] == KEY["session_id"], "the summary has the wrong session_id"
    assert summary["mtime"] > 0, "the store must set mtime"
    assert "A title" in str(summary["data"]), "the summary must include later entries"


async def a_deleted_session_is_gone_with_its_agents(store: Any) -> None:
    for key in (KEY, AGENT, OTHER):
        await store.append(key, [line(1)])
    await store.delete(KEY)
    found = [bool(await store.load(key)) for key in (KEY, AGENT, OTHER)]
    assert found == [False, False, True], "delete must remove the session and its agents, and nothing else"


async def an_agent_can_be_deleted_alone(store: Any) -> None:
    for key in (KEY, AGENT):
        await store.append(key, [line(1)])
    await store.delete(AGENT)
    assert [bool(await store.load(key)) for key in (KEY, AGENT)] == [True, False], (
        "delete with a subpath must remove only the agent"
    )


async def the_agents_of_a_session_are_listed(store: Any) -> None:
    for key in (KEY, AGENT, {**OTHER, "subpath": "subagents/agent-b2"}):
        await store.append(key, [line(1)])
    assert await store.list_subkeys(KEY) == [AGENT["subpath"]], (
        "list_subkeys must return the agents of this session only"
    )


CHECKS: tuple[tuple[Callable[[Any], Awaitable[None]], str | None], ...] = (
    (what_is_appended_is_loaded, None),
    (what_was_never_written_is_none, None),
    (appends_stay_in_their_order, None),
    (an_empty_append_makes_no_session, None),
    (lines_without_an_id_are_all_kept, None),
    (sessions_are_apart, None),
    (projects_are_apart, None),
    (agents_are_apart_from_their_session, None),
    (a_list_has_the_sessions_of_a_project, "list_sessions"),
    (a_list_tells_milliseconds, "list_sessions"),
    (summaries_follow_their_sessions, "list_session_summaries"),
    (a_deleted_session_is_gone_with_its_agents, "delete"),
    (an_agent_can_be_deleted_alone, "delete"),
    (the_agents_of_a_session_are_listed, "list_subkeys"),
)


async def run_session_store_conformance(make_store: Make, *, skip_optional: frozenset[str] = frozenset()) -> None:
    """Raises AssertionError for the first failed check, ValueError if `skip_optional` names a required method."""
    if unknown := sorted(skip_optional - OPTIONAL):
        raise ValueError(f"{unknown[0]!r} is not an optional method (choose from {', '.join(sorted(OPTIONAL))})")
    for check, needed in CHECKS:
        if needed in skip_optional:
            continue
        store = make_store()
        if inspect.isawaitable(store):
            store = await store
        if needed is not None and not hasattr(store, needed):
            continue
        try:
            await check(store)
        except NotImplementedError:
            if needed is None:
                raise
        except AssertionError as exc:
            exc.add_note(f"check: {check.__name__.replace('_', ' ')}")
            raise
