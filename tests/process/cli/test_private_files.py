"""The executable writes nothing through a link in a config directory that an attacker prepared."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers.environment import base_environment
from tests.helpers.forked import run_parley

ID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
HELLO = ("--print", "--model", "offline", "say Hi")


class Machine:
    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.project = tmp_path / "project"
        self.config = tmp_path / "home" / ".claude"
        self.victims = tmp_path / "victims"
        for folder in (self.project, self.config, self.victims):
            folder.mkdir(parents=True)
        self.victim = self.victims / "victim"
        self.key = "".join(letter if letter.isalnum() else "-" for letter in str(self.project))
        self.sessions = self.config / "projects" / self.key

    def run(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(self.config.parent), **base_environment(), **environment}
        return run_parley(argv, cwd=self.project, env=own)

    def first_turn(self) -> Path:
        """A session, and its transcript."""
        assert self.run("--session-id", ID, *HELLO).returncode == 0
        return self.sessions / f"{ID}.jsonl"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def a_link(path: Path, victim: Path) -> None:
    victim.write_text("precious\n")
    path.symlink_to(victim)


def a_dangling_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def a_hard_link(path: Path, victim: Path) -> None:
    victim.write_text("precious\n")
    path.hardlink_to(victim)


def a_pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, victim: Path) -> None:
    path.mkdir()


PLANTS = (a_link, a_dangling_link, a_hard_link, a_pipe, a_folder)
Plant = Callable[[Path, Path], None]


def planted(machine: Machine, plant: Plant, path: Path) -> bytes | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plant(path, machine.victim)
    return machine.victim.read_bytes() if machine.victim.exists() else None


def is_untouched(machine: Machine, before: bytes | None) -> bool:
    return (machine.victim.read_bytes() if machine.victim.exists() else None) == before


FILES = {
    "transcript": ("projects/{key}/{id}.jsonl", ("--session-id", ID)),
    "lease": ("leases/{id}", ("--session-id", ID)),
    "debug": ("debug/{id}.txt", ("--session-id", ID, "--debug")),
    "folder": ("sessions/{id}/messages.jsonl", ("--session-id", ID, "--store", "folder")),
    "database": ("../kept.db", ("--db", "{config}/../kept.db")),
    "log of the database": ("../kept.db-wal", ("--db", "{config}/../kept.db")),
    "debug file": ("../notes.txt", ("--debug-file", "{config}/../notes.txt")),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", FILES)
def test_what_stands_in_place_of_a_file_of_ours_is_refused_by_name(machine: Machine, name: str, plant: Plant) -> None:
    place, argv = FILES[name]
    path = Path(os.path.normpath(machine.config / place.format(key=machine.key, id=ID)))
    before = planted(machine, plant, path)
    done = machine.run(*(word.format(config=machine.config) for word in argv), *HELLO)

    assert done.returncode == 1
    assert is_untouched(machine, before)
    said = done.stdout + done.stderr
    if "is already in use" not in said:  # a file there is a session that exists
        assert f"{path} " in said.replace("home/.claude/..", "home")
        assert said.endswith("; refused\n")
        assert any(words in said for words in ("is a symbolic link", "hard links", "is a named pipe", "is a folder"))


@pytest.mark.parametrize("below", ["projects", "projects/{key}", "leases"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_linked_folder_below_the_config_folder_is_not_used(machine: Machine, below: str, exists: bool) -> None:
    folder = machine.config / below.format(key=machine.key)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(machine.victims if exists else machine.victims / "none")
    done = machine.run("--session-id", ID, *HELLO)

    assert done.returncode == 1
    assert f"{folder} is a symbolic link" in done.stdout + done.stderr
    assert list(machine.victims.iterdir()) == []


def test_the_config_folder_itself_may_be_a_link(machine: Machine) -> None:
    (machine.folder / "link").symlink_to(machine.config)

    assert machine.run("--session-id", ID, *HELLO, CLAUDE_CONFIG_DIR=str(machine.folder / "link")).returncode == 0
    assert machine.run("--resume", ID, *HELLO).returncode == 0


def test_a_session_behind_a_link_is_neither_resumed_nor_forked_nor_listed(machine: Machine) -> None:
    path = machine.first_turn()
    path.rename(machine.victim)
    path.symlink_to(machine.victim)
    before = machine.victim.read_bytes()

    for argv in (
        ("--resume", ID, *HELLO),
        ("--resume", ID, "--fork-session", *HELLO),
        ("sessions", "show", ID),
        ("sessions", "rename", ID, "new"),
        ("sessions", "delete", ID),
    ):
        done = machine.run(*argv)
        assert done.returncode == 1
        assert f"{path} is a symbolic link" in done.stdout + done.stderr
    done = machine.run("sessions", "list")
    assert ID not in done.stdout
    assert f"{path} is a symbolic link" in done.stderr
    assert machine.run("--continue", *HELLO).returncode == 1
    assert machine.victim.read_bytes() == before


def test_a_session_that_has_another_name_is_not_written_to(machine: Machine) -> None:
    path = machine.first_turn()
    machine.victim.hardlink_to(path)
    before = path.read_bytes()
    done = machine.run("--resume", ID, *HELLO)

    assert done.returncode == 1
    assert f"{path} has 2 hard links" in done.stdout + done.stderr
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_is_refused(machine: Machine) -> None:
    path = machine.first_turn()
    before = path.read_bytes()
    os.chown(path, 65534, 65534)
    done = machine.run("--resume", ID, *HELLO)

    assert done.returncode == 1
    assert f"{path} belongs to another user (uid 65534)" in done.stdout + done.stderr
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_may_use_a_folder_that_belongs_to_a_user_as_a_whole(machine: Machine) -> None:
    machine.first_turn()
    for path in (machine.config, *machine.config.rglob("*")):
        os.chown(path, 65534, 65534)

    assert machine.run("--resume", ID, *HELLO).returncode == 0


def test_a_link_to_the_database_of_another_is_not_followed(machine: Machine) -> None:
    assert machine.run("--db", str(machine.victim), *HELLO).returncode == 0
    with closing(sqlite3.connect(machine.victim)) as database:
        before = database.execute("SELECT count(*) FROM parley_messages").fetchone()
    (machine.project / "mine.db").symlink_to(machine.victim)
    done = machine.run("--db", "mine.db", *HELLO)

    assert done.returncode == 1
    assert "mine.db is a symbolic link" in done.stdout + done.stderr
    with closing(sqlite3.connect(machine.victim)) as database:
        assert database.execute("SELECT count(*) FROM parley_messages").fetchone() == before


@pytest.mark.parametrize("plant", [a_link, a_dangling_link, a_hard_link])
@pytest.mark.parametrize("name", ["index.jsonl", "copy.tmp"])
def test_a_file_is_not_changed_if_its_history_would_go_through_a_link(
    machine: Machine, name: str, plant: Plant
) -> None:
    (machine.project / "a.txt").write_text("old")
    before = planted(machine, plant, machine.config / "file-history" / ID / name)
    edit = f'call Write {{"file_path": "{machine.project}/b.txt", "content": "new"}}'
    machine.run(
        "--session-id", ID, "--print", "--model", "offline", "--permission-mode", "acceptEdits", edit,
        CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING="1",
    )  # fmt: skip

    assert is_untouched(machine, before)


@pytest.mark.parametrize("plant", [a_link, a_dangling_link])
def test_a_linked_folder_for_long_results_is_not_written_to(machine: Machine, plant: Plant) -> None:
    machine.sessions.mkdir(parents=True)
    (machine.sessions / ID).symlink_to(machine.victims)
    done = machine.run(
        "--session-id", ID, "--print", "--model", "offline", "--allowedTools", "Bash", "--",
        'call Bash {"command": "seq 200000"}',
    )  # fmt: skip

    assert done.returncode == 0
    assert list(machine.victims.iterdir()) == []


@pytest.mark.parametrize(
    "session_id", ["../../x", "..", ".", "a/b", "x" * 5000, "a\nb", "-", "", "agent-1", "~", "$HOME", "\\..\\x"]
)
@pytest.mark.parametrize("flag", ["--session-id", "--resume"])
def test_an_id_leads_nowhere(machine: Machine, flag: str, session_id: str) -> None:
    done = machine.run(f"{flag}={session_id}", *HELLO)

    assert done.returncode == 1
    assert [path for path in machine.folder.rglob("*") if path.is_file()] == []


def test_a_path_given_to_resume_is_not_a_session(machine: Machine) -> None:
    path = machine.first_turn()
    before = path.read_bytes()
    copy = machine.victims / f"{OTHER}.jsonl"
    copy.write_bytes(before)

    for given in (str(copy), str(path), f"../../victims/{OTHER}", f"{OTHER}.jsonl"):
        assert machine.run("--resume", given, *HELLO).returncode == 1
    assert (copy.read_bytes(), path.read_bytes()) == (before, before)


def test_what_is_new_is_for_its_user_alone(machine: Machine) -> None:
    previous = os.umask(0)
    try:
        machine.first_turn()
        assert machine.run("--db", "kept.db", *HELLO).returncode == 0
    finally:
        os.umask(previous)

    modes = {path: path.stat().st_mode & 0o777 for path in machine.config.rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_file()} <= {0o600}
    assert {mode for path, mode in modes.items() if path.is_dir()} <= {0o700}
    assert (machine.project / "kept.db").stat().st_mode & 0o777 == 0o600


def test_an_export_does_not_write_through_a_planted_name(machine: Machine) -> None:
    machine.first_turn()
    shared = machine.folder / "shared"
    shared.mkdir()
    done = machine.run("sessions", "export", ID, str(shared / "out.jsonl"))

    assert done.returncode == 0
    assert [path.name for path in shared.iterdir()] == ["out.jsonl"]
    assert json.loads((shared / "out.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize("place", ["{tmp}/claude-{uid}/{key}/{id}/tasks", "{config}/projects/{key}/{id}/tool-results"])
def test_a_planted_link_makes_no_file_readable(machine: Machine, place: str) -> None:
    """Files that the session spills for its model are read without asking in its own folders, not through links."""
    machine.victim.write_text("precious\n")
    names = {"tmp": machine.folder / "tmp", "config": machine.config, "uid": os.getuid(), "key": machine.key, "id": ID}
    folder = Path(place.format(**names))
    folder.parent.mkdir(parents=True)
    folder.symlink_to(machine.victims)
    prompt = f'call Read {{"file_path": "{folder}/victim"}}'
    argv = ("--output-format", "stream-json", "--verbose", "--print", "--model", "offline", "--session-id", ID, prompt)

    assert "precious" not in machine.run(*argv, TMPDIR=str(machine.folder / "tmp")).stdout


def test_what_the_session_put_aside_is_read_by_whatever_name_the_user_gave_its_folder(machine: Machine) -> None:
    machine.config.rename(machine.folder / "real")
    machine.config.symlink_to(machine.folder / "real")
    folder = machine.config / "projects" / machine.key / ID / "tool-results"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "x.txt").write_text("put aside\n")
    prompt = f'call Read {{"file_path": "{folder}/x.txt"}}'
    argv = ("--output-format", "stream-json", "--verbose", "--print", "--model", "offline", "--session-id", ID, prompt)

    assert "put aside" in machine.run(*argv).stdout


@pytest.mark.parametrize("folder", ["file-history", "projects/{key}/{id}"])
def test_a_deleted_session_takes_nothing_with_it_that_a_link_leads_to(machine: Machine, folder: str) -> None:
    machine.first_turn()
    (machine.victims / ID).mkdir()
    (machine.victims / ID / "precious").write_text("precious")
    linked = machine.config / folder.format(key=machine.key, id=ID)
    if linked.exists():
        shutil.rmtree(linked)
    linked.symlink_to(machine.victims)
    machine.run("sessions", "delete", ID)

    assert (machine.victims / ID / "precious").read_text() == "precious"
