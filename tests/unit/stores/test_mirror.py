"""What a client is told of a log that it mirrors."""

from __future__ import annotations

from pathlib import Path

import msgspec

from parley.protocol.base import Json, Message, to_builtins
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore
from parley.stores.memory import MemoryStore
from parley.stores.mirror import MirroredLog, MirrorTarget
from tests.helpers.store_conformance import FIRST, TEXT, uuid
from tests.helpers.store_conformance import assistant as assistant_entry
from tests.helpers.store_conformance import note as note_entry
from tests.helpers.store_conformance import user as user_entry

CONTEXT = EntryContext(cwd="/nowhere", version="2.1.0")
PATH = f"/config/projects/-nowhere/{FIRST}.jsonl"


def user(seq: int) -> Entry:
    return user_entry(seq, "Hello")


def assistant(seq: int) -> Entry:
    entry = assistant_entry(seq, TEXT)
    entry.message["message"]["stop_reason"] = "end_turn"
    return entry


def note(seq: int) -> Entry:
    return note_entry(seq, "prompt", {"text": "Be brief."})


class Client:
    """Keeps what it is told."""

    def __init__(self, *held: Entry, is_copy: bool = False, max_bytes: int = 10_000, head: Json | None = None) -> None:
        self.frames: list[Json] = []
        self.warnings: list[str] = []
        self.log = MemoryStore().create(FIRST)
        for entry in held:
            self.log.append(entry)
        self.mirror = MirroredLog(
            self.log,
            self.hear,
            MirrorTarget(path=PATH, session_id=FIRST, context=CONTEXT, max_bytes=max_bytes),
            is_copy=is_copy,
            head=head,
            warn=self.warnings.append,
        )

    def hear(self, message: Message) -> None:
        self.frames.append(to_builtins(message))

    def lines(self) -> list[Json]:
        return [line for frame in self.frames for line in frame["entries"]]


def test_each_entry_is_stored_and_sent_as_a_line_of_the_layout() -> None:
    client = Client()
    for entry in (user(0), note(1), assistant(2)):
        client.mirror.append(entry)

    assert list(client.mirror.entries()) == [user(0), note(1), assistant(2)]
    assert {(frame["type"], frame["filePath"]) for frame in client.frames} == {("transcript_mirror", PATH)}
    assert [line["type"] for line in client.lines()] == ["user", "parley", "assistant"]
    assert [line.get("parentUuid") for line in client.lines()] == [None, None, uuid(0)]


def test_the_first_line_after_a_resume_follows_the_last_before_it() -> None:
    client = Client(user(0), assistant(1))
    list(client.mirror.entries())
    client.mirror.append(user(2))

    assert [(line["uuid"], line["parentUuid"]) for line in client.lines()] == [(uuid(2), uuid(1))]


def test_a_copy_is_mirrored_whole_once_it_has_a_new_message() -> None:
    client = Client(user(0), assistant(1), is_copy=True)
    list(client.mirror.entries())
    assert client.frames == []

    client.mirror.append(user(2))
    client.mirror.append(assistant(3))
    assert [line["uuid"] for line in client.lines()] == [uuid(number) for number in range(4)]
    assert [line["parentUuid"] for line in client.lines()] == [None, uuid(0), uuid(1), uuid(2)]


def test_a_line_that_no_client_could_take_is_kept_and_complained_about() -> None:
    client = Client(max_bytes=100)
    client.mirror.append(user(0))

    assert (client.frames, list(client.log.entries())) == ([], [user(0)])
    assert "entry 0 of the session is not mirrored" in client.warnings[0]


def test_a_transcript_of_mirrored_lines_is_the_session(tmp_path: Path) -> None:
    client = Client()
    conversation = [user(0), note(1), assistant(2)]
    for entry in conversation:
        client.mirror.append(entry)
    path = tmp_path / "projects" / "-nowhere" / f"{FIRST}.jsonl"
    path.parent.mkdir(parents=True)
    # The client spells them anew, its own way.
    path.write_bytes(b"".join(msgspec.json.encode(dict(sorted(line.items()))) + b"\n" for line in client.lines()))

    log = ClaudeStore(tmp_path, CONTEXT).open(FIRST)
    assert list(log.entries()) == conversation
    log.append(user(3))
    assert list(log.entries()) == [*conversation, user(3)]


def test_what_is_known_of_a_subagent_is_reported_before_its_first_line_and_only_then() -> None:
    client = Client(head={"type": "agent_metadata", "agentType": "scout"})
    assert client.frames == []
    for entry in (user(0), assistant(1)):
        client.mirror.append(entry)

    assert [line["type"] for line in client.lines()] == ["agent_metadata", "user", "assistant"]
