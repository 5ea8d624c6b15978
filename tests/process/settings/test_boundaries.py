"""Reads and writes outside the working directories that settings block, and approval requests that they deny."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.policies import Json, Machine, calls, control

READS: Json = {"permissions": {"blockReadsOutsideWorkingDirectories": True}}
WRITES: Json = {"permissions": {"blockWritesOutsideWorkingDirectories": True}}
FREE = "--dangerously-skip-permissions"


def bash(command: str) -> tuple[str, Json]:
    return "Bash", {"command": command, "description": "d"}


def outside(machine: Machine) -> Path:
    return machine.write("outside/secret.txt", "a secret")


@pytest.mark.parametrize("layer", ["user", "settings", "managed", "project"])
def test_reads_outside_are_refused_in_every_mode_and_layer(machine: Machine, layer: str) -> None:
    secret = outside(machine)
    machine.write("inside.txt", "an open word")
    if layer == "project":
        machine.write(".claude/settings.json", READS)
    given: Any = {} if layer == "project" else {layer: READS}
    script = calls(
        ("Read", {"file_path": str(secret)}),
        ("Grep", {"pattern": "secret", "path": str(secret.parent), "output_mode": "content"}),
        ("Glob", {"pattern": f"{secret.parent}/*"}),
        bash(f"cat {secret}"),
        bash("cat ../outside/secret.txt"),
        bash("python3 -c 'print(open(\"../outside/secret.txt\").read())'"),
        bash("eval cat '../outside/secret.t?t'"),
        ("Read", {"file_path": str(machine.work / "inside.txt")}),
        bash("cat inside.txt"),
    )

    done = machine.run(FREE, script=script, **given)

    assert [is_error for is_error, _ in done.outputs] == [True] * 7 + [False] * 2
    assert not any("a secret" in text or "secret.txt" in text for _, text in done.outputs)
    assert "(blockReadsOutsideWorkingDirectories)" in done.outputs[0][1]


def test_a_symlink_does_not_lead_out(machine: Machine) -> None:
    outside(machine)
    (machine.work / "link").symlink_to(machine.folder / "outside")
    script = calls(
        ("Read", {"file_path": str(machine.work / "link" / "secret.txt")}),
        ("Grep", {"pattern": "secret", "path": "link", "output_mode": "content"}),
        bash("cat link/secret.txt"),
    )

    done = machine.run(FREE, user=READS, script=script)

    assert [is_error for is_error, _ in done.outputs] == [True] * 3


def test_a_file_that_the_prompt_mentions_is_not_read(machine: Machine) -> None:
    secret = outside(machine)

    done = machine.run(FREE, user=READS, prompt=f"See @{secret}")

    assert "a secret" not in json.dumps(done.lines)


def test_exempt_paths_may_be_read_only_if_the_launching_program_says_so(machine: Machine) -> None:
    secret = outside(machine)
    exempt = {"permissions": {**READS["permissions"], "blockReadsExemptPaths": [str(secret.parent)]}}
    script = calls(("Read", {"file_path": str(secret)}))

    assert not machine.run(FREE, settings=exempt, script=script).outputs[0][0]
    by_user = machine.run(FREE, user=exempt, script=script)
    assert by_user.outputs[0][0]
    assert "permissions.blockReadsExemptPaths has no effect: only --settings can set this" in by_user.stderr


@pytest.mark.parametrize("layer", ["user", "settings", "managed"])
def test_writes_outside_are_refused_in_every_mode(machine: Machine, layer: str) -> None:
    secret = outside(machine)
    machine.write("notes.txt", "words")
    script = calls(
        ("Write", {"file_path": str(secret.parent / "new.txt"), "content": "x"}),
        bash(f"touch {secret.parent}/new.txt"),
        bash("cp notes.txt ../outside/new.txt"),
        bash("echo x > ../outside/new.txt"),
        bash('python3 -c \'open("../outside/new.txt", "w")\''),
        ("Write", {"file_path": str(machine.work / ".claude" / "settings.json"), "content": "{}"}),
        ("Write", {"file_path": str(machine.work / "new.txt"), "content": "x"}),
        bash("touch new2.txt"),
        bash(f"cat {secret}"),
    )

    given: Any = {layer: WRITES}

    done = machine.run(FREE, script=script, **given)

    assert [is_error for is_error, _ in done.outputs] == [True] * 6 + [False] * 3
    assert sorted(path.name for path in secret.parent.iterdir()) == ["secret.txt"]
    assert (machine.work / "new2.txt").exists()
    assert not (machine.work / ".claude" / "settings.json").exists()


def test_an_allow_rule_does_not_lift_the_boundary(machine: Machine) -> None:
    secret = outside(machine)
    rules = {"permissions": {**READS["permissions"], "allow": ["Read", "Bash", f"Read(/{secret.parent}/**)"]}}
    script = calls(("Read", {"file_path": str(secret)}), bash(f"cat {secret}"))

    assert [is_error for is_error, _ in machine.run(user=rules, script=script).outputs] == [True, True]


def test_a_symlink_cannot_replace_a_working_directory_as_given(machine: Machine) -> None:
    secret, added = outside(machine), machine.folder / "added"
    added.symlink_to(secret.parent)
    listed = {"permissions": {"workingDirectoriesAsGiven": [str(added)]}}
    argv, script = ("--add-dir", str(added)), calls(("Read", {"file_path": str(added / "secret.txt")}))

    assert not machine.run(*argv, script=script).outputs[0][0]
    assert machine.run(*argv, settings=listed, script=script).outputs[0][0]


def grant(machine: Machine) -> Json:
    return {"permissions": {"additionalDirectories": [str(machine.folder / "outside")]}}


def add(machine: Machine) -> Json:
    update = {"type": "addDirectories", "directories": [str(machine.folder / "outside")], "destination": "session"}
    return control("update_permissions", updates=[update])


LOOSENING: dict[str, Any] = {
    "exempt paths": lambda machine: {
        "settings": {"permissions": {"blockReadsExemptPaths": [str(machine.folder / "outside")]}}
    },
    "directories in --settings": lambda machine: {"settings": grant(machine)},
    "directories of the user": lambda machine: {"user": grant(machine)},
    "apply_flag_settings": lambda machine: {"send": (control("apply_flag_settings", settings=grant(machine)),)},
    "update_permissions": lambda machine: {"send": (add(machine),)},
    "set_cwd": lambda machine: {"send": (control("set_cwd", path=str(machine.folder / "outside")),)},
}


@pytest.mark.parametrize("way", LOOSENING)
def test_nothing_moves_the_boundary_of_an_administrator(machine: Machine, way: str) -> None:
    secret = outside(machine)
    both = {"permissions": {**READS["permissions"], **WRITES["permissions"]}}
    script = calls(
        ("Read", {"file_path": str(secret)}),
        bash(f"cat {secret}"),
        ("Write", {"file_path": str(secret.parent / "new"), "content": "x"}),
    )

    done = machine.run(FREE, managed=both, script=script, **LOOSENING[way](machine))

    assert [is_error for is_error, _ in done.outputs] == [True] * 3
    assert not (secret.parent / "new").exists()


def test_the_launch_decides_which_directories_are_inside(machine: Machine) -> None:
    secret = outside(machine)

    done = machine.run(
        FREE, "--add-dir", str(secret.parent), managed=READS, script=calls(("Read", {"file_path": str(secret)}))
    )

    assert not done.outputs[0][0]


def test_an_approval_adds_no_directory_where_reads_outside_are_refused(machine: Machine) -> None:
    outside(machine)

    done = machine.run(user=READS, send=(add(machine),))

    [answer] = [line["response"] for line in done.of("control_response")]
    assert "is outside, where the settings refuse reads or writes" in answer["error"]


def test_no_hook_approves_if_calls_that_need_approval_are_denied(machine: Machine) -> None:
    reply = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
    hook = {"type": "command", "command": f"echo '{json.dumps(reply)}'"}
    hooks = {"hooks": {"PermissionRequest": [{"hooks": [hook]}]}}
    script = calls(bash("touch made"))

    assert not machine.run(settings=hooks, script=script).outputs[0][0]
    (machine.work / "made").unlink()
    denied = machine.run(settings=hooks, managed={"permissions": {"denyInsteadOfPrompting": True}}, script=script)
    assert denied.outputs[0][0]
    assert not (machine.work / "made").exists()


def test_calls_that_need_approval_are_denied_without_asking(machine: Machine) -> None:
    deny = {"permissions": {"denyInsteadOfPrompting": True}}
    argv = ("--permission-prompt-tool", "stdio")

    done = machine.run(*argv, user=deny, script=calls(bash("touch made")))

    assert not done.of("control_request")
    assert done.outputs[0][0]
    assert not (machine.work / "made").exists()


APPROVE = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
APPROVING: Json = {
    "hooks": {"PermissionRequest": [{"hooks": [{"type": "command", "command": f"echo '{json.dumps(APPROVE)}'"}]}]}
}


@pytest.mark.parametrize("layer", ["user", "settings", "project"])
def test_a_hook_does_not_approve_what_the_settings_refuse(machine: Machine, layer: str) -> None:
    argv: tuple[str, ...] = ("--permission-prompt-tool", "stdio")
    deny: Json = {"permissions": {"denyInsteadOfPrompting": True}}
    given: Any = {layer: APPROVING}
    if layer == "project":
        machine.write(".claude/settings.json", given.pop(layer))
        argv = (*argv, "--setting-sources", "user,project,local")

    done = machine.run(*argv, managed=deny, script=calls(bash("touch made")), **given)
    assert done.outputs[0][0]
    assert not (machine.work / "made").exists()

    machine.run(*argv, managed={**deny, **APPROVING}, script=calls(bash("touch made")), **given)
    assert (machine.work / "made").exists()


def test_a_client_that_guards_does_not_approve_what_the_settings_refuse(machine: Machine) -> None:
    deny = {"permissions": {"denyInsteadOfPrompting": True}}
    send = (control("initialize", guard=True),)

    done = machine.run(managed=deny, send=send, script=calls(bash("touch made")))

    assert not done.of("control_request")
    assert done.outputs[0][0]


def test_the_mode_auto_can_be_disabled(machine: Machine) -> None:
    script = calls(("Write", {"file_path": str(machine.work / "made"), "content": "x"}))

    for disabled in ({"disableAutoMode": "disable"}, {"permissions": {"disableAutoMode": "disable"}}):
        done = machine.run("--permission-mode", "auto", user=disabled, script=script)

        assert done.init["permissionMode"] == "default"
        assert "the mode auto is disabled" in done.stderr
    assert not (machine.work / "made").exists()


def test_the_mode_bypass_can_be_disabled(machine: Machine) -> None:
    disabled = {"permissions": {"disableBypassPermissionsMode": "disable"}}

    done = machine.run(FREE, managed=disabled, script=calls(bash("touch made")))

    assert done.init["permissionMode"] == "default"
    assert not (machine.work / "made").exists()
