"""Which entries of many layers take effect, and why the others do not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol.options import MODES
from parley.settings.base import (
    NOT_TRUSTED,
    SOURCES,
    TREE,
    UNKNOWN_KEY,
    IgnoredEntry,
    MergedSettings,
    ProjectTrust,
    RuleText,
    SettingsLayer,
    SettingsValue,
    Source,
)
from parley.settings.merge import NOT_FROM_TREE, ONLY_TIGHTER, TIGHTER, merge

TRUSTED = ProjectTrust(sources=frozenset({"project", "local"}))
STRANGE = ProjectTrust()


def layer(source: Source, text: bytes = b"", **values: Any) -> SettingsLayer:
    return SettingsLayer(source=source, path=f"{source}.json", root=f"/{source}", values=values, text=text)


def value(source: Source, value: Any) -> SettingsValue:
    return SettingsValue(value=value, source=source, path=f"{source}.json", root=f"/{source}")


def inert(source: Source, key: str, entry: str, reason: str) -> IgnoredEntry:
    return IgnoredEntry(key=key, source=source, path=f"{source}.json", reason=reason, entry=entry)


def in_order(*layers: SettingsLayer) -> list[SettingsLayer]:
    return sorted(layers, key=lambda layer: SOURCES.index(layer.source))


def test_models_are_merged_one_by_one_and_never_from_a_project() -> None:
    user, project = layer("user", models={"a": {}, "b": {}}), layer("project", models={"c": {}})
    merged = merge(in_order(layer("flag", models={"a": {"contextWindow": 5}}), project, user), TRUSTED)

    assert merged.models == {"a": value("flag", {"contextWindow": 5}), "b": value("user", {})}
    assert merged.ignored == (inert("project", "models.c", "models.c={}", NOT_FROM_TREE),)


@pytest.mark.parametrize(("strong", "weak"), list(itertools.combinations(SOURCES, 2)))
def test_of_a_plain_value_the_strongest_layer_counts(strong: Source, weak: Source) -> None:
    merged = merge([layer(strong, model="strong"), layer(weak, model="weak")], TRUSTED)

    assert merged == MergedSettings(values={"model": value(strong, "strong")})


def test_variables_are_merged_one_by_one() -> None:
    merged = merge([layer("flag", env={"A": "1"}), layer("user", env={"A": "2", "B": "2"})], STRANGE)

    assert merged.environment == {"A": value("flag", "1"), "B": value("user", "2")}


def test_rules_of_all_layers_count_with_their_source_root_and_line() -> None:
    text = b'{"permissions": {\n"deny": ["Bash(\\"x\\")"],\n"allow": ["Read"]}}'
    merged = merge(
        [
            layer("local", permissions={"ask": ["Write"]}),
            layer("user", text, permissions={"deny": ['Bash("x")'], "allow": ["Read"]}),
        ],
        STRANGE,
    )

    assert merged.rules == (
        RuleText(behavior="ask", text="Write", source="local", root="/local", path="local.json"),
        RuleText(behavior="deny", text='Bash("x")', source="user", root="/user", path="user.json", line=2),
        RuleText(behavior="allow", text="Read", source="user", root="/user", path="user.json", line=3),
    )
    assert merged.to_json() == {"permissions": {"ask": ["Write"], "deny": ['Bash("x")'], "allow": ["Read"]}}


def test_hooks_of_all_layers_count() -> None:
    hooks = {"Stop": [{"hooks": [1]}]}
    merged = merge([layer("flag", hooks=hooks), layer("user", hooks={**hooks, "Other": [2]})], STRANGE)

    assert merged.to_json() == {"hooks": {"Stop": [{"hooks": [1]}, {"hooks": [1]}], "Other": [2]}}


def test_servers_are_merged_name_by_name_and_the_strongest_layer_counts() -> None:
    strong, weak = layer("flag", mcpServers={"a": {"command": "1"}}), layer("user", mcpServers={"a": {}, "b": {}})
    merged = merge([strong, weak], STRANGE)

    assert {name: (value.source, value.value) for name, value in merged.servers.items()} == {
        "a": ("flag", {"command": "1"}),
        "b": ("user", {}),
    }


# Trust.

ACTING: dict[str, Any] = {
    "model": "opus",
    "hooks": {"SessionStart": []},
    "mcpServers": {"evil": {"command": "evil"}},
    "statusLine": {"type": "command", "command": "evil"},
    "sandbox": {"enabled": False},
    "plansDirectory": "/etc",
    "aKeyNobodyKnows": 1,
}
NEVER: dict[str, Any] = {
    "apiKeyHelper": "evil",
    "awsAuthRefresh": "evil",
    "otelHeadersHelper": "evil",
    "proxyAuthHelper": "evil",
    "enableAllProjectMcpServers": True,
    "enabledMcpjsonServers": ["evil"],
    "disableAllHooks": True,
    "webFetchAllowPrivate": True,
}
HARMLESS: dict[str, Any] = {"outputStyle": "terse", "disabledMcpjsonServers": ["x"], "claudeMdExcludes": ["x"]}


@pytest.mark.parametrize("source", sorted(TREE))
def test_without_trust_a_project_acts_on_nothing(source: Source) -> None:
    merged = merge([layer(source, **ACTING, **NEVER, **HARMLESS)], STRANGE)

    assert merged.to_json() == HARMLESS
    assert {item.key: item.reason for item in merged.ignored} == {
        **{key: NOT_TRUSTED for key in ACTING if key not in ("mcpServers", "sandbox")},
        "mcpServers.evil": NOT_TRUSTED,
        "sandbox.enabled": NOT_TRUSTED,
        **dict.fromkeys(NEVER, NOT_FROM_TREE),
    }


@pytest.mark.parametrize("source", sorted(TREE))
def test_a_trusted_project_acts_but_never_speaks_for_the_person(source: Source) -> None:
    merged = merge([layer(source, **ACTING, **NEVER)], TRUSTED)

    assert merged.to_json() == ACTING
    assert {item.key for item in merged.ignored if item.reason != UNKNOWN_KEY} == set(NEVER)
    assert [item.key for item in merged.ignored if item.reason == UNKNOWN_KEY] == ["aKeyNobodyKnows"]


@pytest.mark.parametrize("source", sorted(set(SOURCES) - TREE))
def test_what_the_person_sets_needs_no_trust(source: Source) -> None:
    assert merge([layer(source, **ACTING, **NEVER)], STRANGE).to_json() == {**ACTING, **NEVER}


def test_trust_in_one_layer_of_the_tree_is_none_in_the_other() -> None:
    only_project = ProjectTrust(sources=frozenset({"project"}))

    assert merge([layer("local", model="l"), layer("project", model="p")], only_project).get("model") == "p"


def test_without_trust_rules_only_forbid() -> None:
    permissions = {"allow": ["Bash"], "deny": ["Write"], "ask": ["Read"], "additionalDirectories": ["/"]}
    merged = merge([layer("project", permissions=permissions)], STRANGE)

    assert merged.to_json() == {"permissions": {"deny": ["Write"], "ask": ["Read"]}}
    assert merged.ignored == (
        inert("project", "permissions.allow", "permissions.allow=Bash", NOT_TRUSTED),
        inert("project", "permissions.additionalDirectories", "permissions.additionalDirectories=/", NOT_TRUSTED),
    )


def test_a_consent_on_record_lets_that_very_entry_count() -> None:
    agreed = ProjectTrust(consents=frozenset({"permissions.allow=Bash(ls:*)", "model=opus"}))
    rules = {"allow": ["Bash(ls:*)", "Bash"]}

    assert merge([layer("local", permissions=rules, model="opus")], agreed).to_json() == {
        "permissions": {"allow": ["Bash(ls:*)"]},
        "model": "opus",
    }
    assert merge([layer("local", model="sonnet")], agreed).to_json() == {}


@pytest.mark.parametrize("trust", [STRANGE, TRUSTED])
@pytest.mark.parametrize("name", ["ANTHROPIC_BASE_URL", "HTTPS_PROXY", "NODE_EXTRA_CA_CERTS", "PATH", "LD_PRELOAD"])
def test_some_variables_never_come_from_a_project(trust: ProjectTrust, name: str) -> None:
    merged = merge([layer("project", env={name: "x"})], trust)

    assert merged.environment == {}
    assert merged.ignored == (inert("project", f"env.{name}", f"env.{name}=x", NOT_FROM_TREE),)


# The mode.


@pytest.mark.parametrize(
    ("person", "project", "effective"),
    [
        (None, "plan", "plan"),
        (None, "dontAsk", "dontAsk"),
        (None, "acceptEdits", None),
        (None, "bypassPermissions", None),
        (None, "auto", None),
        ("acceptEdits", "manual", "default"),
        ("bypassPermissions", "acceptEdits", "acceptEdits"),
        ("plan", "dontAsk", "plan"),
        ("dontAsk", "plan", "dontAsk"),
        ("plan", "default", "plan"),
    ],
)
@pytest.mark.parametrize("trust", [STRANGE, TRUSTED])
def test_a_project_may_only_tighten_the_mode(
    trust: ProjectTrust, person: str | None, project: str, effective: str | None
) -> None:
    user = [layer("user", permissions={"defaultMode": person})] if person else []
    merged = merge([layer("project", permissions={"defaultMode": project}), *user], trust)

    assert merged.to_json() == ({"permissions": {"defaultMode": effective}} if effective else {})
    refused = [item.reason for item in merged.ignored]
    assert refused == ([] if merged.mode and merged.mode.source == "project" else [ONLY_TIGHTER])


@pytest.mark.parametrize("source", ["flag", "managed"])
def test_a_mode_for_this_very_session_stays(source: Source) -> None:
    stated = layer(source, permissions={"defaultMode": "acceptEdits"})
    wish = layer("project", permissions={"defaultMode": "plan"})

    assert merge([stated, wish], TRUSTED).mode == value(source, "acceptEdits")


def test_a_project_that_wants_the_persons_mode_has_it() -> None:
    wish = layer("project", permissions={"defaultMode": "acceptEdits"})
    merged = merge([wish, layer("user", permissions={"defaultMode": "acceptEdits"})], STRANGE)

    assert (merged.mode, merged.ignored) == (value("user", "acceptEdits"), ())


def test_anybody_may_disable_bypass() -> None:
    merged = merge([layer("project", permissions={"disableBypassPermissionsMode": "disable"})], STRANGE)

    assert merged.bypass_disabled == value("project", "disable")
    assert merged.to_json() == {"permissions": {"disableBypassPermissionsMode": "disable"}}


def test_a_tighter_mode_is_never_wider_than_one_it_is_tighter_than() -> None:
    for wide, tighter in TIGHTER.items():
        assert wide not in tighter
        assert all(TIGHTER[narrow] < tighter for narrow in tighter)


# Wrong types.


def test_wrong_kinds_are_reported_with_their_line_and_the_rest_counts() -> None:
    text = b"""{
        "model": 5,
        "permissions": {
            "deny": "Bash",
            "ask": ["Read", 7],
            "defaultMode": "yolo"},
        "env": {"A": 1, "B": "2"}}"""
    values: dict[str, Any] = {
        "model": 5,
        "permissions": {"deny": "Bash", "ask": ["Read", 7], "defaultMode": "yolo"},
        "env": {"A": 1, "B": "2"},
    }
    merged = merge([layer("user", text, **values)], STRANGE)

    assert merged.to_json() == {"permissions": {"ask": ["Read"]}, "env": {"B": "2"}}
    assert [str(problem) for problem in merged.problems] == [
        "settings: user.json:2: model must be a string; ignored",
        "settings: user.json:4: permissions.deny must be a list",
        "settings: user.json:5: permissions.ask must be a list of strings",
        f"settings: user.json:6: permissions.defaultMode must be one of {', '.join(MODES)}; ignored",
        "settings: user.json:7: env: 'A' must be a valid variable name with a string as its value; ignored",
    ]


def test_a_key_that_is_there_twice_is_reported() -> None:
    text = b'{"permissions": {"deny": ["A"],\n"deny": ["B"]},\n"model": "deny", "env": {"ask": "ask"}}'
    once = b'{"permissions": {"deny": ["deny", "\\"deny\\""]}}'

    assert [str(problem) for problem in merge([layer("user", text)], STRANGE).problems] == [
        "settings: user.json:1: duplicate key 'deny'; only the last one takes effect"
    ]
    assert merge([layer("user", once)], STRANGE).problems == ()


@pytest.mark.parametrize("variables", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "\0"}, {"A": None}])
def test_a_variable_that_no_process_can_have_is_reported(variables: dict[str, Any]) -> None:
    merged = merge([layer("user", env=variables)], STRANGE)

    assert (merged.environment, len(merged.problems)) == ({}, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PERMISSIONS = st.fixed_dictionaries(
    {}, optional={key: st.lists(st.text(max_size=5), max_size=3) | JSON for key in ("allow", "deny", "ask")}
)
VALUES = st.dictionaries(st.sampled_from([*ACTING, *NEVER, *HARMLESS, "env"]), JSON, max_size=4)


@given(st.sampled_from(sorted(TREE)), VALUES, PERMISSIONS | JSON, VALUES)
def test_whatever_an_untrusted_project_says_nothing_is_widened(
    source: Source, values: dict[str, Any], permissions: Any, own: dict[str, Any]
) -> None:
    person = layer("user", **own, permissions={"allow": ["Read"], "deny": ["Write"]})
    tree = layer(source, **values, permissions=permissions)
    before, after = merge([person], STRANGE), merge([tree, person], STRANGE)

    def acting(merged: MergedSettings) -> Any:
        harmful = {key: found for key, found in merged.values.items() if key not in HARMLESS}
        return harmful, merged.environment, merged.hooks, merged.directories

    assert acting(after) == acting(before)
    assert [rule for rule in after.rules if rule.behavior == "allow"] == [before.rules[0]]
    assert set(before.rules) <= set(after.rules)
