"""Stored sessions, in every store that needs no server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from parley import (
    Client,
    Options,
    ResultMessage,
    SessionMessage,
    UserMessage,
    attach,
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    get_subagent_messages,
    list_sessions,
    list_subagents,
    project_key_for_directory,
    rename_session,
    tag_session,
)
from tests.helpers.sdk import ClientHarness, run
from tests.process.sdk.test_callbacks import calls

UNKNOWN = "00000000-0000-4000-8000-000000000000"
AGENT = calls("Agent", '{ description = "d", prompt = "look", run_in_background = false }')


class Kept:
    """A session of two turns, and its store."""

    def __init__(self, harness: ClientHarness, store: str | None, script: str) -> None:
        given = {} if store is None else {"store": store}
        options = harness.options("local", script, permission_mode="bypassPermissions", **given)
        self.folder = str(options.cwd)
        self.where: dict[str, Any] = {"store": store, "env": options.env}
        self.options = options
        self.id: str = run("asyncio", self.scenario, options)

    async def scenario(self, options: Options) -> str:
        async with Client(options) as client:
            for prompt in ("First things first", "and then"):
                await (await client.ask(prompt))
            assert client.session_id is not None
            return client.session_id


@pytest.fixture(params=[None, "folder", "sqlite"])
def kept(harness: ClientHarness, request: pytest.FixtureRequest) -> Kept:
    store = f"{request.param}:{harness.folder / request.param}.kept" if request.param else None
    return Kept(harness, store, AGENT)


def said(messages: list[SessionMessage]) -> list[Any]:
    return [(one.type, one.message["content"]) for one in messages if isinstance(one.message["content"], str)]


def test_a_session_is_listed_and_read(kept: Kept) -> None:
    [info] = list_sessions(kept.folder, **kept.where)

    assert (info.session_id, info.first_prompt, info.summary) == (kept.id, "First things first", "First things first")
    assert info.created_at is not None
    assert info.last_modified >= info.created_at > 0
    assert get_session_info(kept.id, **kept.where) == info
    assert said(get_session_messages(kept.id, **kept.where)) == [("user", "First things first"), ("user", "and then")]
    all_of_it = get_session_messages(kept.id, **kept.where)
    assert get_session_messages(kept.id, limit=2, offset=1, **kept.where) == all_of_it[1:3]


def test_subagents_are_read_too(kept: Kept) -> None:
    [agent] = list_subagents(kept.id, **kept.where)

    messages = get_subagent_messages(kept.id, agent, **kept.where)
    assert messages[0].type == "user"
    assert "look" in str(messages[0].message)


def test_titles_and_tags_can_be_set_and_removed(kept: Kept) -> None:
    rename_session(kept.id, " A better name ", **kept.where)
    tag_session(kept.id, "keep", **kept.where)
    info = get_session_info(kept.id, **kept.where)
    assert info is not None
    assert (info.custom_title, info.summary, info.tag) == ("A better name", "A better name", "keep")

    tag_session(kept.id, None, **kept.where)
    info = get_session_info(kept.id, **kept.where)
    assert info is not None
    assert info.tag is None


def test_a_fork_continues_from_an_earlier_line(kept: Kept) -> None:
    first = get_session_messages(kept.id, **kept.where)
    upto = next(one for one in first if one.type == "assistant").uuid

    fork = fork_session(kept.id, up_to_message_id=upto, title="Another way", **kept.where).session_id

    assert [one.uuid for one in get_session_messages(fork, **kept.where)] == [
        one.uuid for one in first[: [one.uuid for one in first].index(upto) + 1]
    ]
    info = get_session_info(fork, **kept.where)
    assert info is not None
    assert info.custom_title == "Another way"
    assert len(list_sessions(kept.folder, **kept.where)) == 2


def test_a_deleted_session_is_gone(kept: Kept) -> None:
    delete_session(kept.id, **kept.where)

    assert get_session_info(kept.id, **kept.where) is None
    assert get_session_messages(kept.id, **kept.where) == []
    with pytest.raises(FileNotFoundError):
        delete_session(kept.id, **kept.where)


def test_an_attached_reader_misses_nothing_after_its_cursor(kept: Kept) -> None:
    async def play() -> tuple[list[Any], list[Any]]:
        all_of_it = [line async for line in attach(kept.id, follow=False, **kept.where)]
        reader = attach(kept.id, all_of_it[2].seq, follow=False, **kept.where)
        return all_of_it, [line async for line in reader]

    all_of_it, rest = run("asyncio", play)

    assert rest == all_of_it[3:]
    assert isinstance(all_of_it[0].message, UserMessage)
    assert len([line for line in all_of_it if isinstance(line.message, ResultMessage)]) == 2


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_an_attached_reader_follows_a_running_conversation(harness: ClientHarness, loop: str) -> None:
    async def play(options: Options) -> list[Any]:
        where: dict[str, Any] = {"env": options.env}
        async with Client(options) as client:
            await (await client.ask("one"))
            assert client.session_id is not None
            reader = attach(client.session_id, **where)
            seen = [await anext(reader)]
            await (await client.ask("two"))
            seen += [await anext(reader) for _ in range(5)]
        return seen + [line async for line in reader]

    seen = run(loop, play, harness.options("local"))

    assert [line.seq for line in seen] == sorted({line.seq for line in seen})
    assert [line.message.result for line in seen if isinstance(line.message, ResultMessage)] == ["Hello.", "Hello."]


@pytest.mark.parametrize(
    "change", [lambda one: rename_session(one, "x"), lambda one: tag_session(one, "x"), fork_session]
)
def test_a_missing_session_cannot_be_changed(
    change: Any, harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(harness.folder))

    with pytest.raises(FileNotFoundError):
        change(UNKNOWN)
    with pytest.raises(ValueError, match="invalid session id"):
        change("../../etc/passwd")


def test_a_title_needs_a_letter() -> None:
    with pytest.raises(ValueError, match="title"):
        rename_session(UNKNOWN, "  ")


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, Path]:
    main, other = tmp_path / "main", tmp_path / "other"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(main)]
    main.mkdir()
    for words in (["init"], ["commit", "--allow-empty", "-m", "m"], ["worktree", "add", str(other)]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return main, other


def test_sessions_of_other_worktrees_are_listed_unless_excluded(
    harness: ClientHarness, repository: tuple[Path, Path]
) -> None:
    async def scenario(options: Options) -> None:
        async with Client(options) as client:
            await (await client.ask("Hi"))

    for folder in repository:
        run("asyncio", scenario, harness.options("local", cwd=folder))
    env = harness.options("local").env

    for folder in repository:
        assert len(list_sessions(str(folder), env=env)) == 2
        assert len(list_sessions(str(folder), limit=1, offset=1, env=env)) == 1
        assert len(list_sessions(str(folder), include_worktrees=False, env=env)) == 1
    assert len(list_sessions(env=env)) == 2


def test_the_key_of_a_folder_is_its_path_in_letters_and_digits() -> None:
    assert project_key_for_directory("/srv/my app") == "-srv-my-app"


@pytest.mark.parametrize("pointer", [b"gitdir: \xff", b"gitdir: a\0b"], ids=["no text", "no path"])
def test_a_pointer_to_a_repository_that_is_invalid_hides_no_session(tmp_path: Path, pointer: bytes) -> None:
    (tmp_path / ".git").write_bytes(pointer)

    assert list_sessions(str(tmp_path), env={"HOME": str(tmp_path)}) == []
