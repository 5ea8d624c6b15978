from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from parley.workspace.checkpoints import (
    INDEX,
    ChangeRow,
    CheckpointDamaged,
    CheckpointStore,
    FileState,
    MessageRow,
    hash_bytes,
)


@pytest.fixture
def history(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "history")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"one")
    return tmp_path / "file"


def keep(history: CheckpointStore, file: Path, *, always: bool = False) -> FileState:
    with file.open("rb") as opened:
        return history.save_state(str(file), opened.fileno(), always=always)


def change(history: CheckpointStore, file: Path, data: bytes) -> ChangeRow:
    """A change as it should be: kept, announced, made, settled."""
    made = ChangeRow(path=str(file), before=keep(history, file), after=hash_bytes(data), temp_name="b")
    history.add(made)
    file.write_bytes(data)
    history.settle(happened=True)
    return made


def again(history: CheckpointStore) -> CheckpointStore:
    """The same history in another process."""
    return CheckpointStore(history.folder)


def copies(history: CheckpointStore) -> set[bytes]:
    return {file.read_bytes() for file in history.folder.glob("*@v*")}


def test_what_was_there_can_be_had_back(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    made = change(history, file, b"two")

    assert made.before is not None
    assert made.before.mode == stat.S_IMODE(file.stat().st_mode)
    assert history.content(made.before) == b"one"


def test_a_history_is_the_same_after_a_restart(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    change(history, file, b"two")
    history.begin("m2")

    assert again(history).rows() == history.rows()
    assert [row.id for row in again(history).rows() if isinstance(row, MessageRow)] == ["m1", "m2"]


def test_a_history_is_private(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    change(history, file, b"two")

    assert stat.S_IMODE(history.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(kept.stat().st_mode) for kept in history.folder.iterdir()} == {0o600}
    assert len(list(history.folder.iterdir())) == 2


def test_copies_are_numbered_below_the_hash_of_their_path(history: CheckpointStore, file: Path) -> None:
    for number, data in enumerate((b"two", b"three")):
        history.begin(f"m{number}")
        change(history, file, data)

    names = {kept.name for kept in history.folder.glob("*@v*")}
    assert names == {f"{hash_bytes(str(file).encode())[:16]}@v{version}" for version in (1, 2)}


def test_the_same_content_is_kept_once(history: CheckpointStore, file: Path) -> None:
    for number, data in enumerate((b"two", b"one", b"two", b"one")):
        history.begin(f"m{number}")
        change(history, file, data)

    assert sorted(kept.read_bytes() for kept in history.folder.glob("*@v*")) == [b"one", b"two"]


def test_what_we_wrote_for_the_same_message_is_not_kept(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    change(history, file, b"two")
    change(history, file, b"three")

    assert copies(history) == {b"one"}


def test_what_someone_else_wrote_meanwhile_is_kept(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    change(history, file, b"two")
    file.write_bytes(b"theirs")
    change(history, file, b"three")

    assert copies(history) == {b"one", b"theirs"}


def test_everything_is_kept_where_that_is_asked_for(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    change(history, file, b"two")
    keep(history, file, always=True)

    assert copies(history) == {b"one", b"two"}


def test_a_change_that_did_not_happen_is_not_a_change(history: CheckpointStore, file: Path) -> None:
    first = change(history, file, b"two")
    history.add(ChangeRow(path=str(file), before=keep(history, file), after="x", temp_name="b"))
    history.settle(happened=False)

    assert history.rows() == again(history).rows() == [first]


def test_of_two_equal_changes_the_one_that_did_not_happen_goes(history: CheckpointStore, file: Path) -> None:
    same = ChangeRow(path=str(file), before=None, after="x", temp_name="b")
    history.add(same)
    history.settle(happened=True)
    history.begin("m1")
    history.add(ChangeRow(path=str(file), before=None, after="x", temp_name="b"))
    history.settle(happened=False)

    assert history.rows() == again(history).rows() == [same, MessageRow(id="m1")]


def test_a_change_without_an_outcome_is_unsettled_until_someone_settles_it(
    history: CheckpointStore, file: Path
) -> None:
    made = ChangeRow(path=str(file), before=keep(history, file), after="x", temp_name="b")
    history.add(made)
    later = again(history)
    later.begin("m1")

    assert later.unsettled() == made
    later.settle(happened=False)
    assert later.unsettled() is None
    assert again(history).unsettled() is None
    assert again(history).rows() == [MessageRow(id="m1")]


def test_a_line_that_was_cut_short_is_dropped(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    with (history.folder / INDEX).open("ab") as index:
        index.write(b'{"kind":"message","id":"m')
    later = again(history)
    later.begin("m2")

    assert again(history).rows() == [MessageRow(id="m1"), MessageRow(id="m2")]
    assert again(history).damage is None


def test_a_line_that_cannot_be_read_is_reported(history: CheckpointStore) -> None:
    history.begin("m1")
    with (history.folder / INDEX).open("ab") as index:
        index.write(b'{"kind":"change"}\n')
    later = again(history)

    assert later.rows() == [MessageRow(id="m1")]
    assert later.damage == f"line 2 of {history.folder / INDEX} cannot be read"


@pytest.mark.parametrize("harm", [lambda copy: copy.write_bytes(b"x"), lambda copy: copy.unlink()])
def test_a_copy_that_is_not_what_it_was_is_not_given_out(history: CheckpointStore, file: Path, harm: object) -> None:
    made = change(history, file, b"two")
    assert made.before is not None
    assert callable(harm)
    harm(next(history.folder.glob("*@v*")))

    with pytest.raises((CheckpointDamaged, FileNotFoundError)):
        history.content(made.before)


def test_a_message_that_could_not_be_written_is_written_with_the_next(history: CheckpointStore, tmp_path: Path) -> None:
    history.folder.write_text("in the way")
    history.begin("m1")
    history.folder.unlink()
    history.begin("m2")

    assert again(history).rows() == history.rows() == [MessageRow(id="m1"), MessageRow(id="m2")]


def test_a_change_that_cannot_be_written_is_refused_and_forgotten(history: CheckpointStore, file: Path) -> None:
    history.begin("m1")
    (history.folder / INDEX).unlink()
    (history.folder / INDEX).mkdir()
    with pytest.raises(OSError, match="is a folder"):
        history.add(ChangeRow(path=str(file), before=None, after="x", temp_name="b"))
    (history.folder / INDEX).rmdir()
    history.begin("m2")

    assert history.rows() == [MessageRow(id="m1"), MessageRow(id="m2")]
    assert again(history).rows() == [MessageRow(id="m2")]


def test_a_fork_begins_with_the_history_of_the_older_session(
    history: CheckpointStore, file: Path, tmp_path: Path
) -> None:
    history.begin("m1")
    made = change(history, file, b"two")
    assert made.before is not None
    fork = CheckpointStore(tmp_path / "fork")
    fork.inherit(history)
    change(fork, file, b"three")
    history.forget()

    assert fork.content(made.before) == b"one"
    assert again(fork).rows()[:2] == [MessageRow(id="m1"), made]
    assert stat.S_IMODE((fork.folder / INDEX).stat().st_mode) == 0o600


def test_a_fork_of_a_session_without_history_has_none(history: CheckpointStore, tmp_path: Path) -> None:
    fork = CheckpointStore(tmp_path / "fork")
    fork.inherit(history)

    assert not fork.folder.exists()


def test_a_history_can_be_forgotten(history: CheckpointStore, file: Path) -> None:
    history.forget()
    change(history, file, b"two")
    history.forget()

    assert sorted(os.listdir(history.folder.parent)) == ["file"]


def test_a_history_that_was_deleted_is_made_anew(history: CheckpointStore) -> None:
    history.begin("m1")
    shutil.rmtree(history.folder)
    history.begin("m2")

    assert again(history).rows() == [MessageRow(id="m2")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not list open descriptors")
def test_a_closed_history_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    stores = [CheckpointStore(tmp_path / str(number)) for number in range(3)]
    for store in stores:
        store.begin("m1")
    stores[0].close()
    stores[1].use(tmp_path / "other")
    stores[2].forget()

    assert len(os.listdir("/proc/self/fd")) == before
