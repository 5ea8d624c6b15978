"""No setting is silent: what has no effect is reported, and what restricts stops the start."""

from __future__ import annotations

from typing import Any

import pytest

from parley.settings.keys import KEYS
from tests.helpers import kernel
from tests.helpers.policies import Json, Machine, control


def test_keys_without_effect_are_named_once_on_stderr_and_to_the_client(machine: Machine) -> None:
    done = machine.run(user={"cleanupPeriodDays": 7, "fastMode": True, "theme": "dark", "fsync": "off"})

    (line,) = [line for line in done.stderr.splitlines() if "cleanupPeriodDays" in line]
    path = machine.config / "settings.json"
    assert line == f"settings: {path}: cleanupPeriodDays, fastMode have no effect: Parley does not support it"
    assert done.notices == [line]
    assert done.of("system", "informational")[0]["level"] == "warning"
    kinds = [(line["type"], line.get("subtype")) for line in done.lines]
    assert kinds.index(("system", "informational")) == kinds.index(("system", "init")) + 1
    assert (done.code, done.result["result"]) == (0, "Hello.")


def test_keys_of_a_terminal_or_the_vendor_are_quiet(machine: Machine) -> None:
    quiet = {key: True for key, row in KEYS.items() if row.effect == "quiet" and "." not in key}

    done = machine.run(user=quiet, managed=quiet)

    assert (done.stderr, done.notices) == ("", [])


def test_a_value_that_asks_for_what_happens_anyway_is_not_reported(machine: Machine) -> None:
    done = machine.run(user={"fastMode": False, "includeCoAuthoredBy": False, "sandbox": {"enabled": False}})

    assert (done.stderr, done.notices) == ("", [])


def test_an_unknown_key_is_reported_with_the_nearest_known_one(machine: Machine) -> None:
    done = machine.run(user={"permisions": {}, "permissions": {"denny": []}, "zzzzzz": 1})

    path = machine.config / "settings.json"
    (notice,) = done.notices
    keys = "permisions (did you mean permissions?), permissions.denny (did you mean permissions.deny?), zzzzzz"
    assert notice == f"settings: {path}: {keys} have no effect: unknown key"
    assert notice in done.stderr


def test_a_key_for_administrators_is_reported_in_other_layers(machine: Machine) -> None:
    done = machine.run(user={"deniedModels": ["x"]}, settings={"allowManagedHooksOnly": True})

    assert done.notices == [
        "settings: --settings: allowManagedHooksOnly has no effect: only managed settings can set this",
        f"settings: {machine.config / 'settings.json'}: deniedModels has no effect: only managed settings can set this",
    ]


@pytest.mark.parametrize(
    ("managed", "named"),
    [
        ({"aKeyOfTomorrow": True}, "aKeyOfTomorrow"),
        ({"forceLoginOrgUUID": "x"}, "forceLoginOrgUUID"),
        ({"policyHelper": {"path": "/bin/true"}}, "policyHelper"),
        ({"permissions": {"blockAll": True}}, "permissions.blockAll"),
        ({"deniedModels": "opus"}, "deniedModels must be a list of strings"),
        ({"permissions": {"deny": "Bash"}}, "permissions.deny must be a list"),
        ({"allowedMcpServers": [{"name": "x"}]}, "allowedMcpServers must be"),
    ],
)
def test_a_managed_key_that_cannot_be_enforced_stops_the_start(machine: Machine, managed: Json, named: str) -> None:
    done = machine.run(managed=managed)

    assert done.code == 1
    assert done.result["startup_failure_reason"] == "managed_settings_invalid"
    assert done.result["errors"][0].startswith(f"settings: --managed-settings:1: {named}") or named in done.stderr
    assert not done.of("system", "init")


REQUIRED: Any = {"enabled": True, "failIfUnavailable": True}
OPTIONAL: Any = {"enabled": True, "failIfUnavailable": False}


@pytest.mark.parametrize("sandbox", [REQUIRED, {"enabled": True}])
@pytest.mark.parametrize("where", ["user", "settings", "managed"])
def test_a_sandbox_that_is_missing_stops_the_start(machine: Machine, where: str, sandbox: Json) -> None:
    machine.prefix = kernel.wrap("namespaces", "landlock")
    given: Any = {where: {"sandbox": sandbox}}

    done = machine.run(**given)

    assert done.code == 1
    assert done.result["subtype"] == "error_during_execution"
    assert done.result["startup_failure_reason"] == "sandbox_required_unavailable"
    assert done.result["errors"][0].startswith("Sandbox required but unavailable: ")
    assert "Sandbox required but unavailable: " in done.stderr


def test_only_an_administrator_lifts_the_sandbox_of_an_administrator(machine: Machine) -> None:
    machine.prefix = kernel.wrap("namespaces", "landlock")
    lifted = {"sandbox": {"failIfUnavailable": False}}

    done = machine.run(managed={"sandbox": {"enabled": True}}, user=lifted, settings=lifted)
    assert done.result["startup_failure_reason"] == "sandbox_required_unavailable"

    assert machine.run(managed={"sandbox": OPTIONAL}, user={}).result["result"] == "Hello."


@pytest.mark.parametrize("sandbox", [REQUIRED, {"enabled": True}])
def test_an_untrusted_project_may_require_a_sandbox(machine: Machine, sandbox: Json) -> None:
    machine.prefix = kernel.wrap("namespaces", "landlock")
    machine.write(".claude/settings.json", {"sandbox": sandbox})

    assert machine.run().result["startup_failure_reason"] == "sandbox_required_unavailable"


def test_a_sandbox_that_may_be_missing_is_reported(machine: Machine) -> None:
    machine.prefix = kernel.wrap("namespaces", "landlock")
    done = machine.run(settings={"sandbox": {**OPTIONAL, "network": {"allowedDomains": ["a.example"]}}})

    (notice,) = done.notices
    assert notice.startswith("Sandbox disabled: ")
    assert notice in done.stderr
    assert done.result["result"] == "Hello."


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sandbox": {"enabled": "yes"}}, "sandbox.enabled must be true or false"),
        ({"permissions": {"deny": "Bash"}}, "permissions.deny must be a list"),
        ({"permissions": {"ask": ["Bash", 7]}}, "permissions.ask must be a list of strings"),
        ({"permissions": {"deny": ["Bash("]}}, "the deny rule 'Bash(' ("),
        ({"permissions": {"blockWritesOutsideWorkingDirectories": 1}}, "must be true or false"),
        ({"permissions": ["Bash"]}, "permissions must be an object"),
    ],
)
@pytest.mark.parametrize("where", ["user", "settings"])
def test_a_restriction_that_cannot_be_enforced_stops_the_start(
    machine: Machine, where: str, given: Json, named: str
) -> None:
    layer: Any = {where: given}
    done = machine.run(**layer)

    assert done.code == 1
    assert named in done.result["errors"][0]
    assert done.result["errors"][0].endswith(
        "; the session does not start, because this restriction cannot be enforced"
    )


def test_a_rule_that_restricts_a_misspelt_tool_is_reported(machine: Machine) -> None:
    settings: Json = {"permissions": {"deny": ["Wrte(/x)", "READ", "Elsewhere", "mcp__x__y"], "allow": ["Raed"]}}
    done = machine.run("--disallowedTools", "Bsh", settings=settings)

    assert done.notices == [
        "the deny rule 'Bsh' matches no tool (did you mean Bash?)",
        "the deny rule 'Wrte(/x)' matches no tool (did you mean Write?)",
        "the deny rule 'READ' matches no tool (did you mean Read?)",
    ]
    assert all(notice in done.stderr for notice in done.notices)


def test_a_malformed_rule_on_the_command_line_stops_the_start_only_if_it_restricts(machine: Machine) -> None:
    assert "the deny rule 'Bash('" in machine.run("--disallowedTools", "Bash(").result["errors"][0]

    allowed = machine.run("--allowedTools", "Bash(")
    assert allowed.result["result"] == "Hello."
    assert "the allow rule 'Bash(' (flag) has no effect" in allowed.stderr


def test_sandbox_keys_without_a_sandbox_are_harmless(machine: Machine) -> None:
    done = machine.run(user={"sandbox": {"filesystem": {"denyWrite": ["/x"]}, "excludedCommands": ["git"]}})

    assert (done.stderr, done.notices) == ("", [])


def test_a_running_session_refuses_to_switch_on_a_sandbox_that_is_missing(machine: Machine) -> None:
    machine.prefix = kernel.wrap("namespaces", "landlock")
    wanted = control("apply_flag_settings", settings={"sandbox": {"enabled": True}})

    done = machine.run(send=(wanted,))

    (answer,) = done.of("control_response")
    assert answer["response"]["subtype"] == "error"
    assert answer["response"]["error"].startswith("sandbox.enabled: there is no sandbox: ")


def test_a_change_without_effect_is_reported_when_it_is_made(machine: Machine) -> None:
    wanted = control("apply_flag_settings", settings={"fastMode": True, "languag": "x", "model": "offline"})

    done = machine.run(send=(wanted,))

    assert done.of("control_response")[0]["response"]["subtype"] == "success"
    assert done.notices == [
        "settings: --settings: fastMode has no effect: Parley does not support it",
        "settings: --settings: languag (did you mean language?) has no effect: unknown key",
    ]
    assert all(notice in done.stderr for notice in done.notices)


def test_get_settings_lists_what_has_no_effect(machine: Machine) -> None:
    done = machine.run(user={"cleanupPeriodDays": 7}, send=(control("get_settings"),))

    (answer,) = done.of("control_response")
    assert [(row["key"], row["reason"]) for row in answer["response"]["response"]["inert"]] == [
        ("cleanupPeriodDays", "Parley does not support it")
    ]


@pytest.mark.parametrize(
    ("managed", "starts"),
    [
        ({"requiredMinimumVersion": "2.1.0"}, True),
        ({"requiredMinimumVersion": "3"}, False),
        ({"requiredMaximumVersion": "99.0.0"}, True),
        ({"requiredMaximumVersion": "2.0.999"}, False),
    ],
)
def test_a_required_version_stops_other_versions(machine: Machine, managed: Json, starts: bool) -> None:
    done = machine.run(managed=managed)

    assert (done.code == 0) is starts
    if not starts:
        assert "managed settings require version" in done.result["errors"][0]
        too_old = "requiredMinimumVersion" in managed
        assert done.result["startup_failure_reason"] == (
            "cli_version_too_old" if too_old else "managed_settings_invalid"
        )
