"""The layout of the original CLI: what its readers find in our files, and what we make of theirs."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import SessionError, UnknownSession
from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore, project_key
from tests.helpers.store_conformance import (
    CALL,
    CONVERSATION,
    FIRST,
    SECOND,
    TEXT,
    Place,
    assistant,
    every_claim,
    kept,
    note,
    user,
    uuid,
    write,
)

CWD = "/nowhere/project"
FOLDER = "-nowhere-project"
SURROUNDINGS: Json = {
    "userType": "external",
    "entrypoint": "sdk-py",
    "cwd": CWD,
    "sessionId": FIRST,
    "version": "2.1.0",
    "gitBranch": "main",
}


def store(config: Path, cwd: str = CWD) -> ClaudeStore:
    return ClaudeStore(config, EntryContext(cwd=cwd, version="2.1.0", entrypoint="sdk-py", git_branch="main"))


def transcript(config: Path, session_id: str = FIRST, folder: str = FOLDER) -> Path:
    return config / "projects" / folder / f"{session_id}.jsonl"


def lines(path: Path) -> list[Json]:
    """What the lines say, without the checksum that each of ours ends in."""
    found = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    marks = ["own", "sum", "check"]
    assert all(list(line)[-3:] == marks for line in found)
    return [{key: value for key, value in line.items() if key not in marks} for line in found]


def put(path: Path, *written: Json | bytes) -> None:
    """A transcript that someone else wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(x if isinstance(x, bytes) else msgspec.json.encode(x) + b"\n" for x in written))


def age(config: Path) -> None:
    """Make every transcript a minute older."""
    for path in config.glob("projects/*/*.jsonl"):
        seconds = path.stat().st_mtime - 60
        os.utime(path, (seconds, seconds))


@every_claim
def test_the_layout_keeps_the_promises_of_a_store(claim: Callable[[Place], None], tmp_path: Path) -> None:
    claim(Place(lambda: store(tmp_path), lambda: age(tmp_path)))


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_comes_back_as_it_was_said(texts: list[str]) -> None:
    said = [user(seq, text) for seq, text in enumerate(texts)]
    with TemporaryDirectory() as config:
        write(store(Path(config)), FIRST, *said)

        assert kept(store(Path(config))) == said
        assert len(lines(transcript(Path(config)))) == len(texts)


# Where files are.


def test_a_session_is_one_file_in_the_folder_of_its_project(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [transcript(tmp_path)]
    assert store(tmp_path).path(FIRST) == str(transcript(tmp_path))
    assert store(tmp_path).path(SECOND) == str(transcript(tmp_path, SECOND))


def test_nothing_is_on_disk_before_the_first_entry(tmp_path: Path) -> None:
    log = store(tmp_path).create(FIRST)
    list(log.entries())
    log.close()

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(store(tmp_path), FIRST, CONVERSATION[0])
    finally:
        os.umask(before)
    path = transcript(tmp_path)

    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]


# The long keys were computed with JavaScript: `(h << 5) - h + charCodeAt(i) | 0`, Math.abs, toString(36).
@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        ("/home/me/project", "-home-me-project"),
        ("/nowhere/My_Project 2.0", "-nowhere-My-Project-2-0"),
        ("/nowhere/../nowhere//x/", "-nowhere-x"),
        ("/nowhere/caf\u00e9_1.x", "-nowhere-caf--1-x"),
        ("/nowhere/cafe\u0301_1.x", "-nowhere-caf--1-x"),
        ("/" + "a" * 199, "-" + "a" * 199),
        ("/nowhere/" + "deep/" * 50 + "end", "-nowhere" + "-deep" * 38 + "-d-qtvbtv"),
        ("/nowhere/" + "d\u00e9/" * 80, "-nowhere" + "-d-" * 64 + "-rvt7lj"),
    ],
)
def test_the_key_of_a_project_is_its_path_in_letters_digits_and_dashes(cwd: str, key: str) -> None:
    assert project_key(cwd) == key


def test_a_project_behind_a_link_has_the_key_of_the_real_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert project_key(str(tmp_path / "link")) == project_key(str(tmp_path / "real"))


def test_a_session_is_found_from_another_working_directory(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, *CONVERSATION[:2])
    elsewhere = store(tmp_path, "/somewhere/else")

    assert (elsewhere.exists(FIRST), elsewhere.newest(), elsewhere.path(FIRST)) == (
        True,
        None,
        str(transcript(tmp_path)),
    )
    write(elsewhere, FIRST, *CONVERSATION[2:])
    assert kept(store(tmp_path)) == CONVERSATION


def test_the_project_at_hand_comes_before_the_others(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, user(0, "here"))
    put(transcript(tmp_path, FIRST, "-a"), theirs(1))

    assert kept(store(tmp_path)) == [user(0, "here")]


@pytest.mark.parametrize(
    "session_id", ["*", "../other/x", "/etc/passwd", "..", ".hidden", "", "a/b", "[a]", "x" * 300, "a\x00b", "a\n"]
)
def test_an_id_that_is_not_a_name_is_unknown_and_cannot_be_created(tmp_path: Path, session_id: str) -> None:
    write(store(tmp_path), FIRST, CONVERSATION[0])

    assert not store(tmp_path).exists(session_id)
    with pytest.raises(UnknownSession):
        store(tmp_path).open(session_id)
    with pytest.raises(SessionError, match="invalid session id"):
        store(tmp_path).create(session_id)


@pytest.mark.parametrize("name", ["my notes.jsonl", "empty.jsonl"])
def test_what_is_not_a_session_is_not_the_newest_one(tmp_path: Path, name: str) -> None:
    write(store(tmp_path), FIRST, user(0, "Hello"))
    transcript(tmp_path).with_name(name).write_text("" if "empty" in name else "milk\n")

    assert store(tmp_path).newest() == FIRST
    assert [info.id for info in store(tmp_path).list()] == [FIRST]


def test_the_transcript_of_a_subagent_is_not_the_newest_session(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, CONVERSATION[0])
    age(tmp_path)
    put(transcript(tmp_path, "agent-a1b2c3d"), b"{}\n")

    assert store(tmp_path).newest() == FIRST


# What stands in a line.


def test_lines_have_the_fields_that_readers_of_the_layout_look_for(tmp_path: Path) -> None:
    failed = assistant(2, TEXT, request_id="req_1", is_api_error_message=True, error="rate_limit")
    write(
        store(tmp_path),
        FIRST,
        user(0, "Hello", permissionMode="plan"),
        note(1, "prompt", {"text": "Be brief."}),
        failed,
        assistant(3, CALL),
    )
    unfinished = {"type": "parley", "sessionId": FIRST, "at": "2026-01-02T03:04:03.000Z", "kind": "assistant"}

    assert lines(transcript(tmp_path)) == [
        {
            "parentUuid": None,
            "isSidechain": False,
            "type": "user",
            "message": {"role": "user", "content": "Hello"},
            "uuid": uuid(0),
            "timestamp": "2026-01-02T03:04:00.000Z",
            **SURROUNDINGS,
            "seq": 0,
            "permissionMode": "plan",
        },
        {
            "type": "parley",
            "sessionId": FIRST,
            "timestamp": "2026-01-02T03:04:01.000Z",
            "kind": "prompt",
            "seq": 1,
            "message": {"text": "Be brief."},
        },
        {
            "parentUuid": uuid(0),
            "isSidechain": False,
            "type": "assistant",
            "message": failed.message["message"],
            "uuid": uuid(2),
            "timestamp": "2026-01-02T03:04:02.000Z",
            **SURROUNDINGS,
            "seq": 2,
            "requestId": "req_1",
            "isApiErrorMessage": True,
            "parley": {"error": "rate_limit"},
        },
        {**unfinished, "seq": 3, "entry": assistant(3, CALL).message},
        {
            "parentUuid": uuid(2),
            "isSidechain": False,
            "type": "assistant",
            "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [CALL]},
            "uuid": uuid(3),
            "timestamp": "2026-01-02T03:04:03.000Z",
            **SURROUNDINGS,
            "seq": 3,
            "requestId": "msg_1",
        },
    ]
    assert [found.message.get("request_id") for found in store(tmp_path).open(FIRST).entries()][-2:] == ["req_1", None]


ENDING: Json = {"id": "msg_1", "usage": {"output_tokens": 9}, "stop_reason": "end_turn", "stop_sequence": None}


def test_the_last_block_of_an_answer_is_stored_once_if_the_end_of_the_answer_is_known(tmp_path: Path) -> None:
    blocks = [assistant(seq, TEXT) for seq in (0, 1)]
    for block in blocks:
        block.message["message"] |= {"usage": {"output_tokens": 1}, "stop_reason": None}
    log = store(tmp_path).create(FIRST)
    log.append(blocks[0])
    log.append(blocks[1], note(2, "usage", ENDING))
    log.close()

    found = lines(transcript(tmp_path))
    assert [line["type"] for line in found] == ["parley", "assistant", "assistant", "parley"]
    assert [line["message"]["usage"] for line in found[1:3]] == [{"output_tokens": 9}] * 2
    assert [line["message"]["stop_reason"] for line in found[1:3]] == ["end_turn"] * 2
    assert kept(store(tmp_path)) == [*blocks, note(2, "usage", ENDING)]


def other_answer(seq: int) -> Entry:
    block = assistant(seq, TEXT)
    block.message["message"]["id"] = "msg_2"
    return block


STORED = st.sampled_from(
    [
        lambda seq: user(seq, "Hello"),
        lambda seq: assistant(seq, TEXT),
        other_answer,
        lambda seq: note(seq, "usage", ENDING),
        lambda seq: note(seq, "usage", {**ENDING, "id": "msg_2"}),
        lambda seq: note(seq, "permission", {"tool_use_id": "t1", "decision": "allow"}),
    ]
)


@given(st.lists(st.lists(STORED, min_size=1, max_size=4), min_size=1, max_size=8))
def test_entries_come_back_whatever_was_written_together(batches: list[list[Callable[[int], Entry]]]) -> None:
    numbers = iter(range(60))
    made = [[make(next(numbers)) for make in batch] for batch in batches]
    with TemporaryDirectory() as folder:
        log = store(Path(folder)).create(FIRST)
        for batch in made:
            log.append(*batch)
        log.close()
        assert kept(store(Path(folder))) == [entry for batch in made for entry in batch]


def test_lines_are_compact_and_in_utf_8_with_separators_escaped(tmp_path: Path) -> None:
    write(store(tmp_path), FIRST, user(0, "Grüße \u2028"))

    line = transcript(tmp_path).read_bytes()
    assert line.startswith(b'{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":')
    assert "Grüße \\u2028".encode() in line


@pytest.mark.parametrize("reads_first", [True, False])
def test_the_chain_of_parents_continues_after_a_restart(tmp_path: Path, reads_first: bool) -> None:
    write(store(tmp_path), FIRST, user(0, "a"), assistant(1, TEXT), note(2, "result", {}))
    log = store(tmp_path).open(FIRST)
    if reads_first:
        list(log.entries())
    log.append(user(3, "b"))
    log.close()

    chain = [(line["uuid"], line["parentUuid"]) for line in lines(transcript(tmp_path)) if "uuid" in line]
    assert chain == [(uuid(0), None), (uuid(1), uuid(0)), (uuid(3), uuid(1))]


def test_the_fields_of_the_wire_have_the_names_of_the_layout(tmp_path: Path) -> None:
    entry = user(0, "x")
    more = {"tool_use_result": {"stdout": ""}, "isSynthetic": True, "isReplay": True}
    entry = Entry(seq=0, kind="user", at=entry.at, message={**entry.message, **more})
    write(store(tmp_path), FIRST, entry)

    [line] = lines(transcript(tmp_path))
    assert {key: line.get(key) for key in ("toolUseResult", "isMeta", "parley")} == {
        "toolUseResult": {"stdout": ""},
        "isMeta": True,
        "parley": {"isReplay": True},
    }
    assert kept(store(tmp_path)) == [entry]


# What others wrote.


def theirs(number: int, kind: str = "user", **more: object) -> Json:
    return {
        "parentUuid": uuid(number - 1) if number > 1 else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/their/folder",
        "sessionId": FIRST,
        "version": "2.1.300",
        "gitBranch": "dev",
        "type": kind,
        "message": {"role": kind, "content": f"line {number}"},
        "uuid": uuid(number),
        "timestamp": f"2026-01-02T03:04:{number:02}.000Z",
        **more,
    }


def as_entry(seq: int, number: int, kind: str = "user", **context: object) -> Entry:
    at = f"2026-01-02T03:04:{number:02}.000Z"
    message: Json = {
        "type": kind,
        "message": {"role": kind, "content": f"line {number}"},
        "uuid": uuid(number),
        "session_id": FIRST,
        "timestamp": at,
        "parent_tool_use_id": None,
    }
    return Entry(seq=seq, kind=kind, at=at, message=message, context=context)


def test_a_session_of_the_original_can_be_read(tmp_path: Path) -> None:
    put(
        transcript(tmp_path),
        theirs(1, permissionMode="default", slug="brave-fox"),
        theirs(2, "assistant", requestId="req_1", isApiErrorMessage=True),
    )
    failed = as_entry(1, 2, "assistant")
    failed.message.update(request_id="req_1", is_api_error_message=True)

    assert kept(store(tmp_path)) == [as_entry(0, 1, permissionMode="default", slug="brave-fox"), failed]


FOREIGN: list[Json | bytes] = [
    {"type": "summary", "summary": "A talk"},
    {"type": "custom-title", "customTitle": "T", "sessionId": FIRST},
    {"type": "file-history-snapshot", "snapshot": {}},
    theirs(3, "system", subtype="api_error"),
    theirs(3, "progress"),
    theirs(3, isSidechain=True),
    theirs(3, uuid=None),
    theirs(3, uuid=5),
    theirs(3, message=None),
    theirs(3, message="text"),
    theirs(3, message={"role": "user"}),
    theirs(3, message={"role": "user", "content": 5}),
    theirs(3, message={"role": "user", "content": ["text"]}),
    theirs(3, message={"role": "user", "content": [{"type": "text", "text": None}]}),
    theirs(3, "assistant", message={"role": "assistant", "content": [{"type": "tool_use"}]}),
    theirs(3, "system", subtype="compact_boundary", compactMetadata={"preservedSegment": "x"}),
    {**theirs(3, "parley", message=5, mirrored=True), "kind": "cut"},
    {**theirs(3, "parley", message={}, context=5, mirrored=True), "kind": "cut"},
    b'{"type":"custom-title","deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    b"{broken\n",
    b'{"type":"user"\n',
    b'{"type":"\xff"}\n',
    b"[" * 100_000 + b"\n",
    b"null\n",
    b"[]\n",
    b'"text"\n',
    b"\n",
    b"   \n",
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_line_that_is_not_a_part_of_the_conversation_is_skipped(tmp_path: Path, foreign: Json | bytes) -> None:
    put(transcript(tmp_path), theirs(1), foreign, theirs(2))

    assert kept(store(tmp_path)) == [as_entry(0, 1), as_entry(1, 2)]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_no_line_of_one_session_is_in_the_way_of_a_list_or_a_search(tmp_path: Path, foreign: Json | bytes) -> None:
    put(transcript(tmp_path), foreign, theirs(1))
    there = store(tmp_path)

    assert [info.id for info in there.list()] in ([FIRST], [])  # one that begins with a subagent's line is none
    assert [hit.id for hit in there.search("line")] == [FIRST]


def test_an_odd_field_of_ours_in_a_copied_line_does_not_count(tmp_path: Path) -> None:
    put(transcript(tmp_path), theirs(1, parley=[1], mirrored=True))

    assert kept(store(tmp_path)) == [as_entry(0, 1)]


def test_numbers_continue_after_lines_that_have_none(tmp_path: Path) -> None:
    copied = theirs(2, seq=7, check="0badc0de", forkedFrom={"sessionId": SECOND, "messageUuid": uuid(2)})
    put(transcript(tmp_path), theirs(1), copied, theirs(3))

    assert [entry.seq for entry in kept(store(tmp_path))] == [0, 7, 8]


def test_a_torn_last_line_is_skipped_and_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    put(transcript(tmp_path), theirs(1), b'{"type":"user","message":{"ro')

    assert kept(store(tmp_path)) == [as_entry(0, 1)]
    write(store(tmp_path), FIRST, user(1, "and on"), user(2, "and on"))
    assert kept(store(tmp_path)) == [as_entry(0, 1), user(1, "and on"), user(2, "and on")]


# When the disk does not want.


def test_a_full_disk_is_reported_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = transcript(tmp_path)
    log = store(tmp_path).create(FIRST)
    monkeypatch.setattr(os, "write", full)

    for _ in range(2):
        with pytest.raises(SessionError) as raised:
            log.append(user(0, "Hello"))
        assert str(raised.value) == f"cannot write the session to {path}: No space left on device"
    log.close()


@pytest.mark.parametrize("room", [1, 10, -1])
def test_half_a_line_on_a_full_disk_does_not_swallow_the_next_one(tmp_path: Path, room: int) -> None:
    """Nor is it a record that counts if nothing but its end is missing."""
    log = store(tmp_path).create(FIRST)
    log.append(user(0, "before"))
    before = transcript(tmp_path).stat().st_size
    write(store(tmp_path / "aside"), FIRST, user(0, "before"), user(1, "lost"))
    whole = transcript(tmp_path / "aside").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + room if room > 0 else whole + room, limits[1]))
    try:
        with pytest.raises(SessionError) as raised:
            log.append(user(1, "lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.append(user(1, "behind"))
    log.append(user(2, "and on"))
    log.close()

    assert str(raised.value) == f"cannot write the session to {transcript(tmp_path)}: the disk is full"
    assert kept(store(tmp_path)) == [user(0, "before"), user(1, "behind"), user(2, "and on")]


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "projects").write_text("in the way")

    with pytest.raises(SessionError, match=r"cannot write the session to .*: Not a directory"):
        store(tmp_path).create(FIRST).append(user(0, "Hello"))


def test_a_transcript_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: str, flags: int, *rest: int, **more: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    write(store(tmp_path), FIRST, user(0, "Hello"))
    entries = store(tmp_path).read(FIRST)
    monkeypatch.setattr(os, "open", forbidden)  # as it is for someone else's file; root may read any
    with pytest.raises(SessionError) as raised:
        list(entries)
    assert str(raised.value) == f"cannot read the session from {transcript(tmp_path)}: Permission denied"


def make_folder(path: Path) -> None:
    path.mkdir()


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [make_folder, make_device, make_loop, os.mkfifo])
def test_what_is_not_a_file_is_refused_with_the_reason_and_no_one_waits_for_it(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = transcript(tmp_path)
    path.parent.mkdir(parents=True)
    make(path)
    there = store(tmp_path)

    assert (there.list(), there.search("x"), there.newest()) == ([], [], None)
    for act in (there.exists, there.open, there.read, there.repair, there.delete):
        with pytest.raises(SessionError, match=rf"{path} is a (folder|symbolic link|named pipe); refused"):
            act(FIRST)


def test_a_folder_that_may_not_be_looked_into_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, **more: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", forbidden)  # as it is for someone else's folder; root may look into any
    for look in (lambda: store(tmp_path).exists(FIRST), lambda: store(tmp_path).list()):
        with pytest.raises(SessionError, match=r"cannot access sessions in .*: Permission denied"):
            look()
