"""Writing settings: what stays unchanged, what is refused, and concurrent writers."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from parley.settings import sources, trust
from parley.settings.base import SettingsWriteError
from parley.settings.merge import merge
from parley.settings.writer import SettingsWriter, open_folder

FILES = {
    "userSettings": "config/settings.json",
    "projectSettings": "project/.claude/settings.json",
    "localSettings": "project/.claude/settings.local.json",
}


@pytest.fixture
def store(tmp_path: Path) -> SettingsWriter:
    (tmp_path / "project").mkdir()
    return SettingsWriter(tmp_path / "config", str(tmp_path / "project"))


def written(tmp_path: Path, destination: str) -> Any:
    return json.loads((tmp_path / FILES[destination]).read_text())


def prepare(tmp_path: Path, destination: str, content: str) -> Path:
    path = tmp_path / FILES[destination]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize("destination", FILES)
def test_rules_go_to_the_file_they_are_meant_for(store: SettingsWriter, tmp_path: Path, destination: str) -> None:
    store.change_list(destination, "allow", "add", ["Read", "Bash(ls:*)"])
    store.change_list(destination, "allow", "add", ["Bash(ls:*)", "Write"])
    store.change_list(destination, "deny", "add", ["Bash(rm:*)"])

    assert written(tmp_path, destination) == {
        "permissions": {"allow": ["Read", "Bash(ls:*)", "Write"], "deny": ["Bash(rm:*)"]}
    }
    others = [tmp_path / path for name, path in FILES.items() if name != destination]
    assert [path for path in others if path.exists()] == []


def test_rules_are_replaced_and_removed(store: SettingsWriter, tmp_path: Path) -> None:
    store.change_list("localSettings", "ask", "add", ["A", "B", "C"])
    store.change_list("localSettings", "ask", "remove", ["B", "unknown"])
    assert written(tmp_path, "localSettings") == {"permissions": {"ask": ["A", "C"]}}

    store.change_list("localSettings", "ask", "replace", ["D"])
    assert written(tmp_path, "localSettings") == {"permissions": {"ask": ["D"]}}


def test_directories_and_the_mode_are_kept_as_well(store: SettingsWriter, tmp_path: Path) -> None:
    store.change_list("userSettings", "additionalDirectories", "add", ["/a", "/b"])
    store.change_list("userSettings", "additionalDirectories", "remove", ["/a"])
    store.set_mode("userSettings", "acceptEdits")

    assert written(tmp_path, "userSettings") == {
        "permissions": {"additionalDirectories": ["/b"], "defaultMode": "acceptEdits"}
    }


def test_what_is_not_ours_to_change_keeps_its_spelling(store: SettingsWriter, tmp_path: Path) -> None:
    content = (
        '{\n    "big": 123456789012345678901234567890,\n    "float": 1.50e3,\n    "escaped": "\\u00e9",\n'
        '    "permissions": {\n        "unknown": 1.0,\n        "allow": [\n            "Read"\n        ]\n    },\n'
        '    "last": null\n}\n'
    )
    path = prepare(tmp_path, "userSettings", content)

    store.change_list("userSettings", "allow", "add", ["Write"])

    assert path.read_text() == content.replace('"Read"\n', '"Read",\n            "Write"\n')


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_keeps_its_mode_and_a_new_one_is_private(store: SettingsWriter, tmp_path: Path, mode: int) -> None:
    path = prepare(tmp_path, "projectSettings", "{}")
    path.chmod(mode)
    store.change_list("projectSettings", "deny", "add", ["Bash"])
    store.change_list("localSettings", "deny", "add", ["Bash"])

    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / FILES["localSettings"]).stat().st_mode) == 0o600
    assert sorted(found.name for found in path.parent.iterdir()) == ["settings.json", "settings.local.json"]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"permissions": []}', '{"permissions": {"allow": "Read"}}', '{"a": 1,}']
)
def test_a_file_that_is_not_understood_is_left_alone(store: SettingsWriter, tmp_path: Path, content: str) -> None:
    path = prepare(tmp_path, "userSettings", content)

    with pytest.raises(SettingsWriteError, match="left unchanged"):
        store.change_list("userSettings", "allow", "add", ["Write"])

    assert path.read_text() == content


def test_there_are_no_other_places_to_write_to(store: SettingsWriter, tmp_path: Path) -> None:
    with pytest.raises(SettingsWriteError, match="unknown destination 'session'"):
        store.change_list("session", "allow", "add", ["Write"])


# Planted links.


def test_a_settings_file_that_is_a_link_is_not_written_through(store: SettingsWriter, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("{}")
    for destination in FILES:
        path = prepare(tmp_path, destination, "")
        path.unlink()
        path.symlink_to(tmp_path / "victim")
        with pytest.raises(SettingsWriteError):
            store.change_list(destination, "allow", "add", ["Write"])

    assert (tmp_path / "victim").read_text() == "{}"


def test_a_settings_folder_that_is_a_link_is_not_written_through(store: SettingsWriter, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "project" / ".claude").symlink_to(tmp_path / "victim")

    with pytest.raises(SettingsWriteError, match="is a symbolic link"):
        store.change_list("localSettings", "allow", "add", ["Write"])

    assert list((tmp_path / "victim").iterdir()) == []


def test_a_pipe_or_a_folder_in_the_files_place_is_neither_waited_for_nor_replaced(
    store: SettingsWriter, tmp_path: Path
) -> None:
    path = prepare(tmp_path, "localSettings", "")
    path.unlink()
    for plant in (os.mkfifo, os.mkdir):
        plant(path)
        with pytest.raises(SettingsWriteError):
            store.change_list("localSettings", "deny", "add", ["Write"])
        path.rmdir() if path.is_dir() else path.unlink()


# Many writers.


def test_no_writers_change_is_lost(store: SettingsWriter, tmp_path: Path) -> None:
    def write(name: str) -> None:
        for number in range(5):
            store.change_list("userSettings", "deny", "add", [f"{name}{number}"])

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    rules = written(tmp_path, "userSettings")["permissions"]["deny"]
    assert sorted(rules) == sorted(f"{name}{number}" for name in "abcd" for number in range(5))


def test_the_wait_for_a_lock_is_limited(store: SettingsWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.settings.writer.LOCK_SECONDS", 0.0)
    store.change_list("userSettings", "deny", "add", ["A"])

    with (
        open_folder(tmp_path / "config") as held,
        held.lock(),
        pytest.raises(SettingsWriteError, match="is locked by another process"),
    ):
        store.change_list("userSettings", "deny", "add", ["B"])

    assert written(tmp_path, "userSettings") == {"permissions": {"deny": ["A"]}}


# Consent.


@pytest.mark.parametrize("destination", ["localSettings", "projectSettings"])
def test_the_next_session_believes_what_was_written_and_nothing_else(
    store: SettingsWriter, tmp_path: Path, destination: str
) -> None:
    prepare(tmp_path, destination, '{"permissions": {"allow": ["Bash"], "additionalDirectories": ["/"]}}')
    store.change_list(destination, "allow", "add", ["Bash(ls:*)"])
    store.change_list(destination, "additionalDirectories", "add", ["/data"])
    assert believed(tmp_path) == {"allow": ["Bash(ls:*)"], "additionalDirectories": ["/data"]}

    store.change_list(destination, "allow", "replace", ["Bash(id:*)"])
    assert believed(tmp_path) == {"allow": ["Bash(id:*)"], "additionalDirectories": ["/data"]}


def believed(tmp_path: Path) -> Any:
    """The permissions in effect in a new session."""
    wanted = sources.SourceSelection(
        config=tmp_path / "config", project=str(tmp_path / "project"), managed_file=tmp_path / "none"
    )
    judged, _ = trust.evaluate(wanted.config, wanted.project, None)

    return merge(sources.load_layers(wanted).layers, judged).to_json()["permissions"]


def test_the_persons_own_file_needs_no_consent(store: SettingsWriter, tmp_path: Path) -> None:
    store.change_list("userSettings", "allow", "add", ["Bash"])
    store.change_list("userSettings", "allow", "remove", ["Bash"])

    assert [path.name for path in (tmp_path / "config").iterdir()] == ["settings.json"]


@pytest.mark.parametrize("destination", ["localSettings", "projectSettings"])
def test_what_was_taken_out_again_is_not_believed_when_someone_else_puts_it_back(
    store: SettingsWriter, tmp_path: Path, destination: str
) -> None:
    store.change_list(destination, "allow", "add", ["A", "B"])
    store.change_list(destination, "additionalDirectories", "add", ["/data"])
    store.change_list(destination, "allow", "remove", ["A", "unknown"])
    store.change_list(destination, "allow", "remove", ["unknown"])
    store.change_list(destination, "additionalDirectories", "remove", ["/data"])

    judged, _ = trust.evaluate(tmp_path / "config", str(tmp_path / "project"), None)
    assert judged.consents == {"permissions.allow=B"}


# Single keys.


def test_harmless_keys_are_set_and_taken_out(store: SettingsWriter, tmp_path: Path) -> None:
    store.update("userSettings", {"model": "opus", "language": "de"})
    store.update("userSettings", {"model": None, "outputStyle": "terse"})

    assert written(tmp_path, "userSettings") == {"language": "de", "outputStyle": "terse"}


def test_a_client_may_also_set_keys_that_have_no_effect_here(store: SettingsWriter, tmp_path: Path) -> None:
    quiet = {"cleanupPeriodDays": 30, "editorMode": "vim", "includeCoAuthoredBy": False, "theme": "dark"}
    store.update("userSettings", quiet)

    assert written(tmp_path, "userSettings") == quiet


@pytest.mark.parametrize(
    ("destination", "settings"),
    [
        ("userSettings", {"model": "opus", "hooks": {}}),
        ("userSettings", {"apiKeyHelper": "evil"}),
        ("userSettings", {"permissions": {"allow": ["Bash"]}}),
        ("userSettings", {"env": {}}),
        ("userSettings", {"hooks": None}),
        ("userSettings", {"model": 5}),
        ("projectSettings", {"model": "opus"}),
        ("session", {"model": "opus"}),
    ],
)
def test_other_keys_places_and_kinds_are_refused_as_a_whole(
    store: SettingsWriter, tmp_path: Path, destination: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(SettingsWriteError):
        store.update(destination, settings)

    assert not (tmp_path / "config").exists()
