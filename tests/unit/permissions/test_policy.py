from __future__ import annotations

from typing import Any

import pytest

from parley.permissions.base import Allow, Ask, Deny, InvalidUpdate, ToolRequest
from parley.permissions.policy import LaunchRules, SessionPolicy
from parley.settings.base import MergedSettings, RuleText, SettingsValue, SettingsWriteError
from tests.helpers.file_tree import Tree

TOUCH = ToolRequest(tool="Bash", input={"command": "touch x"}, cwd="/w")


class Files:
    """A rule writer that only records its calls."""

    def __init__(self, broken: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.broken = broken

    def _note(self, *call: Any) -> None:
        if self.broken:
            raise SettingsWriteError("the disk is full")
        self.calls.append(call)

    def change_list(self, destination: str, key: str, how: str, entries: Any) -> None:
        self._note(how, destination, key, entries)

    def set_mode(self, destination: str, mode: str) -> None:
        self._note("mode", destination, mode)


class Desk:
    def __init__(self, files: Files | None = None, **given: Any) -> None:
        self.files = files
        self.warnings: list[str] = []
        self.book = SessionPolicy(
            LaunchRules(cwd="/w", user_root="/config", **given), Tree(), files, self.warnings.append
        )

    def update(self, **update: Any) -> str | None:
        return self.book.update([update])

    def folders(self) -> list[str]:
        return list(self.book.rules.folders)

    def decision(self, request: ToolRequest = TOUCH) -> type:
        return type(self.book.decide(request, "default"))


def update(
    kind: str, *contents: tuple[str, str | None], to: str = "session", behavior: str = "allow"
) -> dict[str, Any]:
    rules = [{"toolName": tool, "ruleContent": spec} for tool, spec in contents]
    return {"type": kind, "rules": rules, "behavior": behavior, "destination": to}


def test_the_command_line_allows_and_denies() -> None:
    assert Desk().decision() is Ask
    assert Desk(allowed=("Bash(touch:*)",)).decision() is Allow
    assert Desk(allowed=("Bash(touch:*)",), denied=("Bash(touch x)",)).decision() is Deny


def test_a_malformed_rule_is_complained_about_with_its_source() -> None:
    desk = Desk(allowed=("Bash(touch",))

    assert desk.decision() is Ask
    assert desk.warnings == ["the allow rule 'Bash(touch' (flag) has no effect: expected Tool or Tool(contents)"]


def test_settings_are_taken_in_and_replaced_as_a_whole() -> None:
    desk = Desk()
    rule = RuleText(behavior="allow", text="Bash(touch:*)", source="user", root="/config", path="/config/settings.json")
    broken = RuleText(behavior="deny", text="Read(", source="project", root="/w", path="/w/s.json", line=3)
    folder = SettingsValue(value="more", source="project", path="/w/s.json", root="/w/sub")

    desk.book.apply_settings(MergedSettings(rules=(rule, broken), directories=(folder,)))
    assert desk.decision() is Allow
    assert desk.folders() == ["/w/sub/more"]
    assert desk.warnings == ["the deny rule 'Read(' (/w/s.json:3) has no effect: expected Tool or Tool(contents)"]

    desk.book.apply_settings(MergedSettings())
    assert desk.decision() is Ask
    assert not desk.folders()


def test_rules_are_added_replaced_and_removed() -> None:
    desk = Desk()
    desk.book.update([update("addRules", ("Bash", "touch:*"))])
    assert desk.decision() is Allow

    desk.book.update([update("replaceRules", ("Bash", "mkdir:*"))])
    assert desk.decision() is Ask

    desk.book.update([update("addRules", ("Bash", None))])
    assert desk.decision() is Allow

    desk.book.update([update("removeRules", ("Bash", None))])
    assert desk.decision() is Ask
    assert [rule.text for rule in desk.book.rules.rules] == ["Bash(mkdir:*)"]


def test_a_rule_that_is_added_twice_is_there_once() -> None:
    desk = Desk()
    desk.book.update([update("addRules", ("Bash", "ls")), update("addRules", ("Bash", "ls"))])

    assert len(desk.book.rules.rules) == 1


def test_to_remove_from_one_place_leaves_the_others() -> None:
    desk = Desk(allowed=("Bash(touch:*)",))
    desk.book.update([update("removeRules", ("Bash", "touch:*"))])

    assert desk.decision() is Allow


def test_folders_come_and_go() -> None:
    desk = Desk(folders=("../other",))
    reading = ToolRequest(tool="Read", input={"file_path": "/more/a"}, cwd="/w")
    assert desk.folders() == ["/other"]

    desk.update(type="addDirectories", directories=["/more", "~/x", "~"])
    assert desk.decision(reading) is Allow
    assert desk.folders() == ["/other", "/more", "/home/me/x", "/home/me"]

    desk.update(type="removeDirectories", directories=["/more", "~/x", "~"])
    assert desk.decision(reading) is Ask


def test_a_mode_is_handed_on() -> None:
    assert Desk().update(type="setMode", mode="acceptEdits") == "acceptEdits"


@pytest.mark.parametrize(
    ("destination", "source"), [("localSettings", "local"), ("projectSettings", "project"), ("userSettings", "user")]
)
def test_what_is_meant_for_later_is_written_and_counts_at_once(destination: str, source: str) -> None:
    files = Files()
    desk = Desk(files)
    desk.book.update(
        [
            update("addRules", ("Bash", "touch (x)"), to=destination),
            update("replaceRules", ("Bash", "touch:*"), to=destination),
            update("removeRules", ("Read", None), to=destination, behavior="deny"),
            {"type": "setMode", "mode": "plan", "destination": destination},
            {"type": "addDirectories", "directories": ["/more"], "destination": destination},
            {"type": "removeDirectories", "directories": ["/old"], "destination": destination},
        ]
    )

    assert files.calls == [
        ("add", destination, "allow", [r"Bash(touch \(x\))"]),
        ("replace", destination, "allow", ["Bash(touch:*)"]),
        ("remove", destination, "deny", ["Read"]),
        ("mode", destination, "plan"),
        ("add", destination, "additionalDirectories", ["/more"]),
        ("remove", destination, "additionalDirectories", ["/old"]),
    ]
    assert [(rule.text, rule.source) for rule in desk.book.rules.rules] == [("Bash(touch:*)", source)]
    assert desk.decision() is Allow


@pytest.mark.parametrize("destination", ["session", "cliArg"])
def test_what_is_meant_for_the_session_is_written_nowhere(destination: str) -> None:
    files = Files()
    desk = Desk(files)
    desk.book.update([update("addRules", ("Bash", "touch:*"), to=destination)])

    assert files.calls == []
    assert desk.decision() is Allow


@pytest.mark.parametrize(("files", "why"), [(Files(broken=True), "the disk is full"), (None, "cannot write to")])
def test_what_cannot_be_written_counts_for_the_session(files: Files | None, why: str) -> None:
    desk = Desk(files)
    desk.book.update([update("addRules", ("Bash", "touch:*"), to="userSettings")])

    assert desk.decision() is Allow
    assert why in desk.warnings[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"type": "grantEverything"},
        {"type": "setMode", "mode": "nonsense"},
        {"type": "addRules", "rules": "Bash", "behavior": "allow"},
        {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "maybe"},
        {"type": "addRules", "rules": [{"toolName": 1}], "behavior": "allow"},
        {"type": "addDirectories", "directories": ["/"] * 4096},
        {"type": "addDirectories", "directories": ["/x"], "destination": "elsewhere"},
    ],
)
def test_updates_that_cannot_be_understood_change_nothing(wrong: dict[str, Any]) -> None:
    desk = Desk()

    with pytest.raises(InvalidUpdate):
        desk.book.update([update("addRules", ("Bash", "touch:*")), wrong])
    assert desk.decision() is Ask


def test_all_rules_are_listed_with_their_places() -> None:
    desk = Desk(allowed=("Read",), folders=("/more",))
    desk.book.update([update("addRules", ("Bash", "ls"), behavior="ask")])

    assert desk.book.list_rules() == {
        "rules": [
            {"behavior": "allow", "source": "cliArg", "rule": "Read", "editability": "readonly"},
            {"behavior": "ask", "source": "session", "rule": "Bash(ls)", "editability": "editable"},
        ],
        "workspaceDirectories": [{"path": "/more"}],
        "originalCwd": "/w",
        "managedOnly": False,
    }


def test_what_may_not_be_read_is_hidden() -> None:
    book = Desk(denied=("Read(.env)",)).book

    assert book.is_hidden("/w/sub/.env")
    assert not book.is_hidden("/w/env")
    assert not Desk().book.is_hidden("/w/.env")


@pytest.mark.parametrize(("destination", "path"), [("userSettings", "/config/a"), ("session", "/w/a")])
def test_a_leading_slash_means_the_folder_of_the_settings_that_a_rule_is_for(destination: str, path: str) -> None:
    desk = Desk(Files())
    desk.update(
        type="addRules", rules=[{"toolName": "Read", "ruleContent": "/a"}], behavior="deny", destination=destination
    )

    denied = [name for name in ("/config/a", "/w/a") if desk.book.is_hidden(name)]

    assert denied == [path]
