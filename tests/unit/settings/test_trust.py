"""Which folders the user trusts."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.settings.base import ProjectTrust, SettingsWriteError
from parley.settings.trust import NAME, evaluate, identify, read_trust_file, record_consent, record_trust

BOTH = frozenset({"project", "local"})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def trust(config: Path, project: Path, sources: tuple[str, ...] | None = None) -> ProjectTrust:
    return evaluate(config, str(project), sources)[0]


def test_no_one_is_trusted_from_the_start(config: Path, project: Path) -> None:
    assert trust(config, project) == ProjectTrust()
    assert not config.exists()


@pytest.mark.parametrize(
    ("sources", "trusted"),
    [
        (None, set()),
        ((), set()),
        (("user",), set()),
        (("user", "project"), {"project"}),
        (("local",), {"local"}),
        (("user", "project", "local"), {"project", "local"}),
    ],
)
def test_a_source_named_on_the_command_line_is_trusted(
    config: Path, project: Path, sources: tuple[str, ...] | None, trusted: set[str]
) -> None:
    assert trust(config, project, sources) == ProjectTrust(sources=frozenset(trusted))


def test_a_recorded_folder_is_trusted_until_it_is_forgotten(config: Path, project: Path) -> None:
    record_trust(config, identify(project), True)
    assert trust(config, project) == ProjectTrust(sources=BOTH, covered=frozenset())

    record_trust(config, identify(project), False)
    assert trust(config, project) == ProjectTrust()
    assert json.loads((config / NAME).read_text()) == {"folders": {}}


def test_trust_is_in_the_folder_itself_by_whatever_name(config: Path, project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    record_trust(config, identify(tmp_path / "link"), True)

    assert trust(config, project) == ProjectTrust(sources=BOTH, covered=frozenset())
    assert list(read_trust_file(config).folders) == [str(project)]


def test_another_folder_in_the_same_place_is_not_trusted(config: Path, project: Path, tmp_path: Path) -> None:
    record_trust(config, identify(project), True)
    project.rename(tmp_path / "away")
    project.mkdir()

    assert trust(config, project) == ProjectTrust()
    assert trust(config, tmp_path / "away") == ProjectTrust()


def test_a_new_folder_with_the_path_and_the_inode_of_a_trusted_one_is_not_trusted(config: Path, project: Path) -> None:
    trusted = identify(project)
    record_trust(config, trusted, True)
    project.rmdir()
    for _ in range(200):
        project.mkdir()
        if project.stat().st_ino == trusted.inode:
            break
        project.rmdir()
    else:
        pytest.skip("this file system does not give inodes away again at once")

    judged, problem = evaluate(config, str(project), None)
    assert judged == ProjectTrust()
    assert f"{project} is not the folder that was trusted" in str(problem)


def test_a_record_without_a_birth_time_counts_where_there_is_none(config: Path) -> None:
    """A file system without creation times: path, device and inode are compared."""
    record_trust(config, identify("/proc"), True)
    assert identify("/proc").born is None
    assert trust(config, Path("/proc")).sources == BOTH


def test_folders_within_a_trusted_one_are_not(config: Path, project: Path) -> None:
    (project / "vendored").mkdir()
    record_trust(config, identify(project), True)

    assert trust(config, project / "vendored") == ProjectTrust()


def test_consents_add_up_and_go_with_trust(config: Path, project: Path) -> None:
    record_consent(config, identify(project), ["a=1", "b=2"])
    record_consent(config, identify(project), ["b=2", "c=3"])
    assert trust(config, project) == ProjectTrust(consents=frozenset({"a=1", "b=2", "c=3"}))

    record_trust(config, identify(project), False)
    assert trust(config, project) == ProjectTrust()


def test_the_record_is_private_and_nothing_lies_beside_it(config: Path, project: Path) -> None:
    record_trust(config, identify(project), True)

    assert [path.name for path in config.iterdir()] == [NAME]
    assert stat.S_IMODE((config / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(config.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"folders": []}', b'{"folders": {"/": {}}}', b'{"folders": {"/": {"device": "x"}}}']
)
def test_a_broken_record_vouches_for_no_one_and_is_left_alone(config: Path, project: Path, content: bytes) -> None:
    config.mkdir()
    (config / NAME).write_bytes(content)

    judged, problem = evaluate(config, str(project), None)
    assert judged == ProjectTrust()
    assert "no folder is trusted" in str(problem)
    with pytest.raises(SettingsWriteError):
        record_trust(config, identify(project), True)
    assert (config / NAME).read_bytes() == content


def test_a_record_that_others_may_write_vouches_for_no_one(config: Path, project: Path) -> None:
    record_trust(config, identify(project), True)
    (config / NAME).chmod(0o666)

    assert trust(config, project) == ProjectTrust()


def test_a_planted_link_is_neither_read_nor_written_through(config: Path, project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    record_trust(elsewhere, identify(project), True)
    before = (elsewhere / NAME).read_bytes()
    config.mkdir()
    (config / NAME).symlink_to(elsewhere / NAME)

    assert trust(config, project) == ProjectTrust()
    with pytest.raises(SettingsWriteError):
        record_trust(config, identify(project), False)
    assert (elsewhere / NAME).read_bytes() == before


def test_a_pipe_in_the_records_place_is_not_waited_for(config: Path, project: Path) -> None:
    config.mkdir()
    os.mkfifo(config / NAME)

    assert trust(config, project) == ProjectTrust()
    with pytest.raises(SettingsWriteError):
        record_trust(config, identify(project), True)


@pytest.mark.parametrize("name", ["none", "file", "nul\0"])
def test_only_a_folder_can_be_trusted(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="cannot open the folder"):
        identify(f"{tmp_path}/{name}")


def test_a_project_that_is_gone_is_not_trusted(config: Path, tmp_path: Path) -> None:
    assert trust(config, tmp_path / "none") == ProjectTrust()
