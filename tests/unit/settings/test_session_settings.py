"""The settings of one session: loading, warnings, and everything derived from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.protocol.base import UNSET
from parley.settings.base import CHANGED, OutputStyle, SettingsValue, SettingsWriteError
from parley.settings.session_settings import SessionSettings, may_declare_servers
from parley.settings.sources import SourceSelection

BASE = {"HOME": "/home/ann", "A": "0", "SECRET": "hush"}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "project" / ".claude").mkdir(parents=True)
    return tmp_path


def desk(folders: Path, **wanted: Any) -> SessionSettings:
    given = {"config": folders / "config", "project": str(folders / "project"), "managed_file": folders / "none"}

    def without_secrets(environment: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if name != "SECRET"}

    return SessionSettings(SourceSelection(**{**given, **wanted}), BASE, without_secrets)


def project(folders: Path, **settings: Any) -> str:
    path = folders / "project" / ".claude" / "settings.json"
    path.write_text(json.dumps(settings))
    return str(path)


def test_settings_are_read_and_merged_with_what_is_on_record(folders: Path) -> None:
    project(folders, model="opus")
    assert desk(folders).merged.get("model") is None

    desk(folders).record_trust(True)
    assert desk(folders).merged.get("model") == "opus"
    assert desk(folders).trusted_folders() == [str(folders / "project")]

    desk(folders).record_trust(False)
    assert desk(folders).merged.get("model") is None


def test_agents_and_commands_act_as_they_were_when_the_folder_was_trusted(folders: Path) -> None:
    tree = folders / "project" / ".claude"
    for kind, name in (("agents", "a"), ("agents", "b"), ("commands", "a"), ("commands", "b")):
        (tree / kind).mkdir(exist_ok=True)
        (tree / kind / f"{name}.md").write_text(f"---\nname: {name}\ndescription: x\npermissionMode: plan\n---\nGo")
    desk(folders).record_trust(True)
    for kind in ("agents", "commands"):
        with (tree / kind / "b.md").open("a") as file:
            file.write("!`evil`")

    agents, problems = desk(folders).agents()
    recipes, _ = desk(folders).templates()
    assert (agents["a"].permissionMode, agents["b"].permissionMode) == ("plan", UNSET)
    assert [str(problem) for problem in problems] == [
        f"settings: {tree}/agents/b.md: permissionMode has no effect: {CHANGED}",
    ]
    assert {recipe.name: recipe.is_trusted for recipe in recipes} == {"a": True, "b": False}


def test_what_a_person_agreed_to_counts_beside_what_was_trusted(folders: Path) -> None:
    project(folders, permissions={"allow": ["Bash(ls:*)"]})
    desk(folders).record_trust(True)
    desk(folders).writer.change_list("projectSettings", "allow", "add", ["Bash(make:*)"])
    project(folders, permissions={"allow": ["Bash(ls:*)", "Bash(make:*)", "Bash(evil:*)"]})

    assert [rule.text for rule in desk(folders).merged.rules] == ["Bash(ls:*)", "Bash(make:*)"]
    named = desk(folders, sources=("user", "project"))
    assert [rule.text for rule in named.merged.rules] == ["Bash(ls:*)", "Bash(make:*)", "Bash(evil:*)"]


def test_what_does_not_count_is_reported_in_one_line_that_can_do_no_harm_to_a_terminal(folders: Path) -> None:
    path = project(folders, **{"\x1b[2Jevil": 1, "apiKeyHelper": "x"}, **{f"key{number:02}": 1 for number in range(12)})

    named = ", ".join(f"key{number:02}" for number in range(11))
    advice = f"the folder is not trusted (to trust it, run `parley trust {folders}/project`)"
    assert desk(folders).warnings() == [
        f"settings: {path}: \\x1b[2Jevil, {named} and 1 more have no effect: {advice}",
        f"settings: {path}: apiKeyHelper has no effect: a project cannot set this",
    ]


def test_errors_of_files_and_of_the_record_are_reported(folders: Path) -> None:
    (folders / "config" / "settings.json").write_text("{")
    (folders / "config" / "trust.json").write_text("[]")
    project(folders, permissions={"ask": 5})

    told = desk(folders).warnings()

    assert [line.split(": ")[1].rpartition("/")[2] for line in told] == [
        "settings.json:1",
        "trust.json:1",
        "settings.json:1",
    ]
    with pytest.raises(SettingsWriteError, match="no folder is trusted"):
        desk(folders).trusted_folders()


def test_children_see_the_environment_of_the_settings_without_secrets(folders: Path) -> None:
    changed = desk(folders, given='{"env": {"A": "1", "SECRET": "more"}}')

    assert changed.child_environment() == {"HOME": "/home/ann", "A": "1"}
    assert changed.environment() == {"HOME": "/home/ann", "A": "1", "SECRET": "more"}


def test_further_folders_are_absolute(folders: Path) -> None:
    given = json.dumps({"permissions": {"additionalDirectories": ["../x", "~/y", "~", "/z", "/z/../z"]}})

    assert desk(folders, given=given).folders() == (f"{folders}/x", "/home/ann/y", "/home/ann", "/z")


def test_the_style_is_the_one_that_is_named(folders: Path) -> None:
    (folders / "project" / ".claude" / "output-styles").mkdir()
    (folders / "project" / ".claude" / "output-styles" / "terse.md").write_text("Be brief.")
    assert desk(folders).style() == OutputStyle()

    project(folders, outputStyle="terse")
    assert desk(folders).style() == OutputStyle(name="terse", text="Be brief.")
    assert desk(folders, given='{"outputStyle": "terse"}', sources=()).style().text == ""


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, ["person", "project"]),
        ({"sources": ("user",)}, ["person"]),
        ({"sources": ("project",)}, ["project"]),
        ({"sources": ()}, []),
        ({"bare": True}, []),
    ],
)
def test_memory_comes_from_the_sources_that_are_enabled(
    folders: Path, wanted: dict[str, Any], words: list[str]
) -> None:
    (folders / "config" / "CLAUDE.md").write_text("person words")
    (folders / "project" / "CLAUDE.md").write_text("project words")

    found = desk(folders, **wanted).memory(str(folders / "project"), (), lambda path: False)

    assert [line.removesuffix(" words") for line in found.text.splitlines() if line.endswith(" words")] == words
    assert found.problems == ()


# Changes.


def test_the_hosts_settings_are_merged_key_by_key_and_null_takes_a_key_out(folders: Path) -> None:
    (folders / "config" / "settings.json").write_text('{"model": "haiku"}')
    changed = desk(folders, given='{"model": "opus", "env": {"A": "1", "B": "1"}}')

    merged = changed.apply({"env": {"A": "2"}, "language": "de"})
    assert merged.to_json() == {"model": "opus", "env": {"A": "2"}, "language": "de"}

    assert changed.apply({"model": None, "env": None}).to_json() == {"model": "haiku", "language": "de"}
    assert [layer.source for layer in changed.layers()] == ["flag", "user"]


def test_wrong_settings_of_the_host_change_nothing(folders: Path) -> None:
    changed = desk(folders, given='{"model": "opus"}')

    with pytest.raises(SettingsWriteError, match=r"permissions\.deny must be a list"):
        changed.apply({"model": "sonnet", "permissions": {"deny": "Bash"}})

    assert changed.merged.to_json() == {"model": "opus"}


@pytest.mark.parametrize(("destination", "source"), [("localSettings", "local"), ("userSettings", "user")])
def test_an_update_is_written_and_counts_at_once(folders: Path, destination: str, source: Any) -> None:
    changed = desk(folders)
    merged = changed.update(destination, {"model": "opus"})

    assert (merged.values["model"].value, merged.values["model"].source) == ("opus", source)
    assert desk(folders).merged == merged
    assert isinstance(merged.values["model"], SettingsValue)


def test_an_update_of_a_file_that_is_not_read_does_not_count(folders: Path) -> None:
    assert desk(folders, sources=()).update("userSettings", {"model": "opus"}).to_json() == {}
    assert desk(folders).merged.to_json() == {"model": "opus"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", False),
        ('{"mcpServers": {}, "projects": {"/p": {"mcpServers" :\n { }, "disabledMcpjsonServers": [\n]}}}', False),
        ('{"mcpServers": {"a": {}}}', True),
        ('{"projects": {"/p": {"mcpServers":{"a": {}}}}}', True),
        ('{"disabledMcpjsonServers": ["a"]}', True),
        ('{"mcpServers": 5}', True),
    ],
)
def test_the_file_of_claude_code_is_decoded_only_if_it_may_have_servers(
    tmp_path: Path, text: str, expected: bool
) -> None:
    (tmp_path / ".claude.json").write_text(text)
    assert may_declare_servers(tmp_path / ".claude.json") is expected
    assert may_declare_servers(tmp_path / "none") is False
