"""Which settings files are loaded, and what is reported about those that cannot be used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from parley.errors import UsageError
from parley.settings.base import SettingsLayer, SettingsProblem
from parley.settings.sources import LOSS, UNSAFE, LoadedLayers, SourceSelection, config_folder, home, load_layers

PROJECT = '{"model": "opus"}'
NOTHING = Path("/no/such/file")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / ".claude"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".claude").mkdir(parents=True)
    return folder


def found(config: Path, project: Path, **wanted: Any) -> LoadedLayers:
    return load_layers(
        SourceSelection(**{"config": config, "project": str(project), "managed_file": NOTHING, **wanted})
    )


def names(read: LoadedLayers) -> list[tuple[str, Any]]:
    return [(layer.source, layer.values.get("n")) for layer in read.layers]


def everywhere(config: Path, project: Path) -> None:
    (config / "settings.json").write_text('{"n": "user"}')
    (project / ".claude" / "settings.json").write_text('{"n": "project"}')
    (project / ".claude" / "settings.local.json").write_text('{"n": "local"}')


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.claude"),
        ({"HOME": "/home/ann", "CLAUDE_CONFIG_DIR": "/srv/claude"}, "/srv/claude"),
        ({"HOME": "/home/ann", "CLAUDE_CONFIG_DIR": ""}, "/home/ann/.claude"),
    ],
)
def test_one_variable_moves_the_config_folder(environment: dict[str, str], folder: str) -> None:
    assert config_folder(environment) == Path(folder)


def test_without_a_home_the_accounts_own_is_used() -> None:
    assert home({}) == Path("~").expanduser()


def test_the_layers_come_the_strongest_first(config: Path, project: Path, tmp_path: Path) -> None:
    everywhere(config, project)
    managed = tmp_path / "managed.json"
    managed.write_text('{"n": "etc"}')
    managed.chmod(0o644)

    layers = found(config, project, managed_file=managed, given='{"n": "flag"}')

    assert names(layers) == [
        ("managed", "etc"),
        ("flag", "flag"),
        ("local", "local"),
        ("project", "project"),
        ("user", "user"),
    ]
    assert [layer.root for layer in layers.layers] == [
        str(tmp_path),
        str(project),
        str(project),
        str(project),
        str(config),
    ]


def test_without_a_managed_file_the_flag_is_the_policy(config: Path, project: Path) -> None:
    layers = found(config, project, managed='{"n": "inline"}', given='{"n": "flag"}')

    assert names(layers)[:2] == [("managed", "inline"), ("flag", "flag")]


def test_a_managed_file_replaces_the_policy_of_the_flag(config: Path, project: Path, tmp_path: Path) -> None:
    managed = tmp_path / "managed.json"
    managed.write_text('{"n": "etc"}')
    managed.chmod(0o644)

    layers = found(config, project, managed_file=managed, managed='{"n": "inline"}')

    assert names(layers) == [("managed", "etc")]
    assert [problem.text for problem in layers.problems] == [
        f"ignored, because {managed} exists and does not set parentSettingsBehavior to 'merge'"
    ]


def test_a_managed_file_that_merges_takes_only_restrictions_of_the_flag(
    config: Path, project: Path, tmp_path: Path
) -> None:
    managed = tmp_path / "managed.json"
    managed.write_text('{"parentSettingsBehavior": "merge"}')
    managed.chmod(0o644)
    given = {"deniedModels": ["opus"], "permissions": {"deny": ["Bash"], "allow": ["Read"]}, "env": {"A": "1"}}

    layers = found(config, project, managed_file=managed, managed=json.dumps(given))

    assert layers.layers[1].values == {"deniedModels": ["opus"], "permissions": {"deny": ["Bash"]}}


@pytest.mark.parametrize(
    ("wanted", "sources"),
    [
        ({}, ["local", "project", "user"]),
        ({"sources": ()}, []),
        ({"sources": ("project",)}, ["project"]),
        ({"sources": ("user", "local")}, ["local", "user"]),
        ({"bare": True}, []),
        ({"bare": True, "sources": ("user",)}, []),
    ],
)
def test_the_sources_decide_which_files_are_read(
    config: Path, project: Path, wanted: dict[str, Any], sources: list[str]
) -> None:
    everywhere(config, project)

    assert [layer.source for layer in found(config, project, **wanted).layers] == sources


def test_a_source_that_does_not_exist_is_refused(config: Path, project: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown source 'projct' \(choose from user, project, local\)"):
        found(config, project, sources=("user", "projct"))


def test_a_layer_knows_its_file_and_its_text(config: Path, project: Path) -> None:
    path = project / ".claude" / "settings.json"
    path.write_text(PROJECT)

    assert found(config, project).layers == (
        SettingsLayer(
            source="project", path=str(path), root=str(project), values={"model": "opus"}, text=PROJECT.encode()
        ),
    )


def test_in_the_home_folder_the_persons_file_is_not_the_projects_as_well(config: Path) -> None:
    (config / "settings.json").write_text('{"n": "user"}')

    assert names(found(config, config.parent)) == [("user", "user")]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b'{\n  "a": 1,\n  b\n}', 3, "is not valid JSON: JSON is malformed: object keys must be strings (byte 14)"),
        (b'{\n  "a": 1,\n', 2, "is not valid JSON: Input data was truncated"),
        (b"", 1, "is not valid JSON: Input data was truncated"),
        (b"[]", 1, "must be a JSON object"),
        (b'{"a": // comment\n1}', 1, "is not valid JSON: JSON is malformed: invalid character (byte 6)"),
        (b"[" * 100_000, None, "is nested too deeply"),
    ],
)
def test_a_broken_file_is_named_with_its_line_and_the_others_hold(
    config: Path, project: Path, content: bytes, line: int | None, reason: str
) -> None:
    everywhere(config, project)
    path = project / ".claude" / "settings.json"
    path.write_bytes(content)

    layers = found(config, project)

    assert names(layers) == [("local", "local"), ("user", "user")]
    assert layers.problems == (SettingsProblem(path=str(path), text=f"{reason}; {LOSS}", line=line),)


def test_what_is_said_of_a_broken_file_names_the_line_and_what_is_lost(config: Path, project: Path) -> None:
    (config / "settings.json").write_text('{\n"permissions": {"deny": ["Bash"]},\n}')
    [problem] = found(config, project).problems

    assert str(problem).startswith(f"settings: {config}/settings.json:3: is not valid JSON")
    assert str(problem).endswith("any deny or ask rules in it are not enforced")


@pytest.mark.parametrize("kind", ["folder", "pipe", "link out", "huge", "device"])
def test_a_settings_file_that_is_not_a_file_of_the_project_is_reported_and_never_waited_for(
    config: Path, project: Path, tmp_path: Path, kind: str
) -> None:
    path = project / ".claude" / "settings.json"
    (tmp_path / "outside.json").write_text("{}")
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link out":
            path.symlink_to(tmp_path / "outside.json")
        case "huge":
            path.write_bytes(b"{" + b" " * 1_000_000 + b"}")
        case "device":
            path.symlink_to("/dev/zero")

    layers = found(config, project)

    assert layers.layers == ()
    assert [problem.path for problem in layers.problems] == [str(path)]


def test_a_link_within_the_project_is_followed(config: Path, project: Path) -> None:
    (project / "shared.json").write_text(PROJECT)
    (project / ".claude" / "settings.json").symlink_to("../shared.json")

    assert [layer.values for layer in found(config, project).layers] == [{"model": "opus"}]


def test_a_folder_of_settings_that_leads_elsewhere_is_not_followed(config: Path, tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "settings.json").write_text(PROJECT)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / ".claude").symlink_to(tmp_path / "evil")

    assert found(config, bare).layers == ()


# Settings on the command line.


@pytest.mark.parametrize("text", ['{"n":"opus","env":{"A":"1"}}', ' \n{"n": "opus", "env": {"A": "1"}}\n'])
def test_settings_may_be_given_inline(config: Path, project: Path, text: str) -> None:
    [layer] = found(config, project, given=text).layers

    assert (layer.source, layer.path, layer.values) == ("flag", "--settings", {"n": "opus", "env": {"A": "1"}})


def test_settings_may_be_given_as_a_file(config: Path, project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"n": "opus"}')

    [layer] = found(config, project, given=f"{tmp_path}/mine.json").layers

    assert (layer.path, layer.values) == (f"{tmp_path}/mine.json", {"n": "opus"})


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        ("{folder}/none.json", "cannot read the settings file {folder}/none.json: No such file or directory"),
        ("{folder}", "cannot read the settings file {folder}: Is a directory"),
        ('{{\n"n":', "settings: --settings:2: is not valid JSON: Input data was truncated"),
        ("{folder}/broken.json", "settings: {folder}/broken.json:1: must be a JSON object"),
        ("{folder}/huge.json", "settings: {folder}/huge.json: is larger than the limit of 1,000,000 bytes"),
    ],
)
def test_settings_on_the_command_line_must_be_right(
    config: Path, project: Path, tmp_path: Path, given: str, warning: str
) -> None:
    (tmp_path / "broken.json").write_text("[]")
    (tmp_path / "huge.json").write_text("{" + " " * 1_000_000 + "}")

    with pytest.raises(UsageError) as raised:
        found(config, project, given=given.format(folder=tmp_path))

    assert str(raised.value) == warning.format(folder=tmp_path)


# Managed settings.


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_managed_file_that_others_may_write_is_not_used(
    config: Path, project: Path, tmp_path: Path, mode: int
) -> None:
    managed = tmp_path / "managed.json"
    managed.write_text('{"n": "etc"}')
    managed.chmod(mode)

    assert found(config, project, managed_file=managed) == LoadedLayers(
        layers=(), problems=(SettingsProblem(path=str(managed), text=UNSAFE),)
    )
    with pytest.raises(UsageError, match="must be owned by root or by you"):
        found(config, project, managed=str(managed))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_managed_file_of_someone_else_is_not_used(config: Path, project: Path, tmp_path: Path) -> None:
    managed = tmp_path / "managed.json"
    managed.write_text('{"n": "etc"}')
    managed.chmod(0o644)
    os.chown(managed, 4711, 4711)

    assert found(config, project, managed_file=managed).layers == ()


def test_a_managed_file_in_a_folder_where_others_may_write_is_not_used(
    config: Path, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "managed.json").write_text('{"n": "etc"}')
    (tmp_path / "etc").chmod(0o777)

    assert found(config, project, managed_file=tmp_path / "etc" / "managed.json").layers == ()


def test_no_one_works_past_a_managed_file_that_is_broken(config: Path, project: Path, tmp_path: Path) -> None:
    managed = tmp_path / "managed.json"
    managed.write_text('{"permissions": {"deny": ["Bash"]')
    managed.chmod(0o644)

    with pytest.raises(UsageError) as raised:
        found(config, project, managed_file=managed)

    assert str(raised.value) == f"settings: {managed}:1: is not valid JSON: Input data was truncated"
