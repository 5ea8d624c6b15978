"""Commands of a real session in the sandbox: everyday work, the options, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.compose.composer import Composer
from parley.protocol.options import CliOptions
from parley.workspace.base import Scope
from parley.workspace.landlock import abi_version
from parley.workspace.process.processes import CommandOutput, PreparedCommand
from parley.workspace.sandbox.base import LANDLOCK_WITH_SCOPES, SandboxedCommand, find_bubblewrap
from tests.helpers import kernel
from tests.helpers.forked import PARLEY
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.policies import Json, Machine, Run
from tests.helpers.process import ProcessHarness

NO_BUBBLEWRAP: Json = {"sandbox": {"bwrapPath": "/nonexistent"}}
ENABLED: Json = {"enabled": True, "autoAllowBashIfSandboxed": True}
KINDS = ("bubblewrap", "landlock")
GIT = "git -c user.name=a -c user.email=a@example.com"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is for Linux")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def need(kind: str) -> None:
    if kind == "bubblewrap" and (problem := find_bubblewrap(None, weaker_nested=False)[1]):
        pytest.skip(problem)
    if kind == "landlock" and abi_version() < LANDLOCK_WITH_SCOPES:
        pytest.skip("this kernel has no Landlock with scopes")


def script(*calls: str | Json) -> str:
    """A model that makes these Bash calls one after the other."""
    inputs = [{"command": call} if isinstance(call, str) else call for call in calls]
    turns = [f"[[turn]]\ntools = [{{ name = 'Bash', input = {toml(one)} }}]\n" for one in inputs]
    return "\n".join([*turns, '[[turn]]\ntext = "Hello."\n'])


def toml(values: Json) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + " }"


def run(
    machine: Machine, *calls: str | Json, kind: str = "bubblewrap", argv: tuple[str, ...] = (), **sandbox: Any
) -> Run:
    need(kind)
    settings = {"sandbox": {**ENABLED, **sandbox}}
    managed = NO_BUBBLEWRAP if kind == "landlock" else None
    return machine.run(*argv, settings=settings, managed=managed, script=script(*calls))


def runs(program: str) -> bool:
    """Whether a program is installed, and works: `cargo` of rustup needs a toolchain."""
    done = shutil.which(program) and subprocess.run([program, "--version"], capture_output=True, check=False)
    return bool(done and done.returncode == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_everyday_work_passes_in_the_sandbox(machine: Machine, kind: str) -> None:
    subprocess.run(["git", "init", "-q", machine.work], check=True)
    machine.write(
        "test_it.py", "import subprocess\n\ndef test_it(tmp_path):\n    subprocess.run(['true'], check=True)\n"
    )
    machine.write("Makefile", "all:\n\t@mkdir -p out && echo made > out/file && chmod +x out/file\n")
    node = "require('child_process').execSync('echo hi > built.txt')"
    machine.write("package.json", {"name": "a", "version": "1.0.0", "scripts": {"build": f'node -e "{node}"'}})
    machine.write("crate/Cargo.toml", '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n')
    machine.write("crate/src/main.rs", "fn main() {}\n")
    wanted = {
        "git": f"{GIT} commit -qm one --allow-empty && git add Makefile && {GIT} commit -qm two && git status --short",
        "make": "make && cat out/file",
        "npm": "npm run build && cat built.txt",
        "cargo": "(cd crate && cargo check --offline 2>&1)",
    }
    commands = [command for program, command in wanted.items() if runs(program)]
    commands.append(f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider test_it.py")
    # rustup and cargo find their files by these.
    home = Path.home()
    machine.environment |= {"RUSTUP_HOME": str(home / ".rustup"), "CARGO_HOME": str(home / ".cargo")}

    done = run(machine, *commands, kind=kind)

    assert done.of("system", "init")[0]["sandbox"] == kind
    assert [text for failed, text in done.outputs if failed] == []
    assert len(done.outputs) == len(commands)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_names_the_path(machine: Machine, kind: str) -> None:
    for name in ("outside/kept.txt", "outside/shown.txt", "outside/open/file", "outside/secret/key"):
        machine.write(name, "text\n")
    machine.write("frozen/file", "old\n")
    outside = machine.folder / "outside"
    done = run(
        machine,
        f"echo new > {outside}/kept.txt",
        f"cat {outside}/secret/key",
        "echo new > frozen/file",
        f"echo new > {outside}/open/file && cat {outside}/open/file && cat {outside}/shown.txt",
        kind=kind,
        filesystem={
            "allowWrite": [str(outside / "open")],
            "denyWrite": ["frozen"],
            "denyRead": [str(outside / "secret")],
            "allowRead": [str(outside / "shown.txt"), str(outside / "kept.txt")],
        },
    )

    (_, kept), (_, secret), (_, frozen), (failed, opened) = done.outputs
    assert f"{outside}/kept.txt: it is outside of the folders that commands in the sandbox may change" in kept
    assert f"{outside}/secret/key: reading it is not allowed in the sandbox" in secret
    assert f"{machine.work}/frozen/file: writing it is not allowed in the sandbox" in frozen
    assert (failed, opened) == (False, "new\ntext")
    assert (outside / "kept.txt").read_text() == "text\n"
    assert (machine.work / "frozen/file").read_text() == "old\n"


@pytest.mark.parametrize("kind", KINDS)
def test_protected_files_stay_as_they_are_and_nothing_is_left_behind(machine: Machine, kind: str) -> None:
    subprocess.run(["git", "init", "-q", machine.work], check=True)
    machine.write(".github/workflow.yml", "on: push\n")
    machine.write("real.json", "{}\n")
    (machine.work / ".mcp.json").symlink_to("real.json")
    before = {path: path.read_bytes() for path in machine.work.rglob("*") if path.is_file()}
    attack = """
        echo x >> .git/config; cp /bin/true .git/hooks/pre-commit; echo ../x > .git/commondir; mv .git moved
        echo x >> .github/workflow.yml; rm -f .mcp.json; echo x > .mcp.json; echo x > .npmrc; echo x > .ENVRC
        mkdir -p .vscode .claude/agents; echo x > .vscode/tasks.json; echo x > .claude/settings.json
    """
    machine.write("attack.sh", attack)

    done = run(machine, "bash attack.sh; true", kind=kind)

    (machine.work / "attack.sh").unlink()
    assert {path: path.read_bytes() for path in machine.work.rglob("*") if path.is_file()} == before
    assert sorted(os.listdir(machine.work)) == [".git", ".github", ".mcp.json", "real.json"]
    assert os.readlink(machine.work / ".mcp.json") == "real.json"
    assert ".npmrc: it is protected" in done.outputs[0][1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_protected_file_that_the_user_lets_a_tool_change_is_not_restored(machine: Machine, kind: str) -> None:
    need(kind)
    machine.write(".github/old.yml", "old\n")
    new = {"file_path": str(machine.work / ".npmrc"), "content": "new\n"}
    changed = {"file_path": str(machine.work / ".github/new.yml"), "content": "new\n"}
    tools: list[tuple[str, Json]] = [
        ("Bash", {"command": "until [ -e stop ]; do sleep 0.1; done", "run_in_background": True}),
        ("Write", new),
        ("Write", changed),
    ]
    turns = [f"[[turn]]\ntools = [{{ name = '{name}', input = {toml(input)} }}]\n" for name, input in tools]
    machine.run(
        "--permission-mode",
        "bypassPermissions",
        settings={"sandbox": ENABLED},
        managed=NO_BUBBLEWRAP if kind == "landlock" else None,
        script="\n".join([*turns, script("echo x >> .github/old.yml; touch stop")]),
    )

    assert (machine.work / ".npmrc").read_text() == "new\n"
    assert (machine.work / ".github/new.yml").read_text() == "new\n"
    assert (machine.work / ".github/old.yml").read_text() == "old\n"


async def test_nothing_is_left_behind_by_a_killed_engine(tmp_path: Path) -> None:
    need("bubblewrap")
    (tmp_path / "sub").mkdir()
    own = {"file_path": str(tmp_path / "sub/.envrc"), "content": "mine"}
    turns = [
        f"[[turn]]\ntools = [{{ name = '{name}', input = {toml(input)} }}]\n"
        for name, input in (("Bash", {"command": "sleep 1000", "run_in_background": True}), ("Write", own))
    ]
    commands = "\n".join([*turns, script("echo x | tee .npmrc > sub/.npmrc; echo ready > ready; sleep 1000")])
    flags = ("--permission-mode", "bypassPermissions")
    async with ProcessHarness(tmp_path, commands, *flags, settings={"sandbox": ENABLED}) as harness:
        harness.prompt("Go")
        await wait_until((tmp_path / "ready").exists)
        assert (tmp_path / ".vscode").is_dir()
        harness.exit_code = -signal.SIGKILL
        os.kill(harness.process.pid, signal.SIGKILL)
        await harness.process.wait()
        await wait_until(lambda: not {".vscode", ".npmrc"} & set(os.listdir(tmp_path)))
    assert os.listdir(tmp_path / "sub") == [".envrc"]  # which the user let a tool write


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110  # another process does it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [(("namespaces",), "landlock"), (("namespaces", "landlock"), None), (("landlock",), "bubblewrap")],
)
def test_what_the_machine_lacks_decides_the_kind(
    machine: Machine, missing: tuple[str, ...], expected: str | None
) -> None:
    need("landlock" if expected == "landlock" else "bubblewrap")
    machine.prefix = kernel.wrap(*missing)

    done = machine.run("--require-sandbox", script=script("true"))

    if expected is None:
        assert done.result["startup_failure_reason"] == "sandbox_required_unavailable"
        assert not done.of("system", "init")
    else:
        assert done.of("system", "init")[0]["sandbox"] == expected


def test_a_command_leaves_the_sandbox_only_with_approval(machine: Machine) -> None:
    outside = machine.folder / "outside.txt"
    call = {"command": f"echo hi > {outside}", "dangerouslyDisableSandbox": True}

    refused = run(machine, call, argv=("--permission-mode", "bypassPermissions"))
    assert "asks to run outside of the sandbox" in refused.outputs[0][1]
    denied = run(machine, call, allowUnsandboxedCommands=False)
    assert "do not allow commands outside of the sandbox" in denied.outputs[0][1]
    assert not outside.exists()


async def test_the_client_is_asked_about_a_command_outside_and_about_hosts(tmp_path: Path) -> None:
    need("bubblewrap")
    outside = tmp_path.parent / f"{tmp_path.name}.txt"
    calls = script(
        {"command": f"echo hi > {outside}", "dangerouslyDisableSandbox": True},
        "curl -sS http://nowhere.example/; true",
    )
    flags = ("--permission-prompt-tool", "stdio")
    async with ProcessHarness(tmp_path, calls, *flags, settings={"sandbox": ENABLED}) as harness:
        harness.prompt("Go")
        first = await harness.receive_until(is_question)
        harness.send(allow(first))
        second = await harness.receive_until(is_question)
        harness.send(deny(second))
        await harness.receive("result")
        outputs = [block for line in harness.messages("user") for block in line["message"]["content"]]

    assert first["request"]["decision_reason_type"] == "sandboxOverride"
    assert outside.read_text() == "hi\n"
    assert second["request"]["tool_name"] == "SandboxNetworkAccess"
    assert second["request"]["input"] == {"host": "nowhere.example"}
    assert "nowhere.example:80: " in str(outputs[-1])


def is_question(line: Json) -> bool:
    return bool(line["type"] == "control_request" and line["request"].get("subtype") == "can_use_tool")


def allow(request: Json) -> Json:
    return reply(request, {"behavior": "allow", "updatedInput": request["request"]["input"]})


def deny(request: Json) -> Json:
    return reply(request, {"behavior": "deny", "message": "No."})


def reply(request: Json, response: Json) -> Json:
    inner = {"subtype": "success", "request_id": request["request_id"], "response": response}
    return {"type": "control_response", "response": inner}


def test_excluded_commands_run_outside(machine: Machine) -> None:
    done = run(
        machine,
        "printenv PARLEY_SANDBOX",
        "printenv HOME",
        excludedCommands=["printenv HOME"],
        argv=("--allowedTools", "Bash(printenv *)"),
    )

    assert [text for _, text in done.outputs] == ["bubblewrap", str(machine.folder / "home")]


def test_a_program_in_the_project_does_not_leave_the_sandbox_by_an_excluded_name(machine: Machine) -> None:
    """A command could have put it there; the project may be on PATH."""
    for name in ("bin/whoami", "bin/env"):
        machine.write(name, "#!/bin/sh\necho planted in $PARLEY_SANDBOX\n").chmod(0o755)
    (machine.folder / "own").mkdir()
    (machine.folder / "own/linked").symlink_to(machine.work / "bin/whoami")
    (machine.folder / "own/script").write_text("#!/usr/bin/env sh\necho script in $PARLEY_SANDBOX; env\n")
    (machine.folder / "own/script").chmod(0o755)
    machine.environment["PATH"] = f"{machine.work}/bin:{machine.folder}/own:{machine.environment['PATH']}"

    done = run(
        machine,
        *("whoami", "linked", "script", "./bin/whoami", f"{machine.work}/bin/whoami"),
        excludedCommands=["whoami", "linked", "script", "./bin/whoami", f"{machine.work}/bin/whoami"],
        argv=("--allowedTools", "Bash"),
    )

    first, linked, script, relative, absolute = (text for _, text in done.outputs)
    assert {first, linked, relative, absolute} == {"planted in bubblewrap"}
    assert script.startswith("script in\n")
    assert "planted" not in script


def test_hooks_and_servers_run_in_the_sandbox_on_request(machine: Machine) -> None:
    need("bubblewrap")
    outside = machine.folder / "hook.txt"
    hook = {"hooks": [{"type": "command", "command": f"echo $PARLEY_SANDBOX > seen; echo x > {outside}"}]}
    settings = {"sandbox": {**ENABLED, "confineHooks": True}, "hooks": {"UserPromptSubmit": [hook]}}

    machine.run(settings=settings)

    assert (machine.work / "seen").read_text() == "bubblewrap\n"
    assert not outside.exists()


async def test_a_command_that_only_reads_cannot_read_outside(machine: Machine) -> None:
    """The permission layer does not let such a command pass, so the sandbox is asked directly."""
    need("bubblewrap")
    machine.write("notes.txt", "inside\n")
    secret = machine.write("outside/notes.txt", "outside\n")
    composer = Composer(CliOptions(model="offline"), machine.environment, str(machine.work))
    workspace = composer.make_config().workspace
    reader = Scope(anywhere=True, confined="reader")
    sandbox = workspace.find_sandbox(reader)
    assert sandbox is not None
    command = f"cat notes.txt; cat {secret} /etc/shadow; echo x > new.txt; cat < /dev/tcp/127.0.0.1/80; cat ~/.ssh/id"
    place = await sandbox.place(SandboxedCommand(command=command, scope=reader))
    assert place is not None
    output = CommandOutput(10_000, lambda: machine.folder / "spilled")
    try:
        prepared = PreparedCommand(
            argv=["/bin/bash", "-c", command],
            cwd=str(machine.work),
            environment=place.adapt(workspace.environment),
            sandbox=place.confinement,
        )
        await workspace.processes.run(prepared, PATIENCE_SECONDS, output)
    finally:
        await workspace.processes.close()

    said = output.kept.decode()
    assert said.startswith("inside\n")
    assert "outside\n" not in said
    assert "root:" not in said
    assert not (machine.work / "new.txt").exists()


def test_violations_can_be_left_unreported(machine: Machine) -> None:
    done = run(machine, "echo x > /etc/hosts", ignoreViolations={"*": ["/etc/hosts"]})

    assert "Read-only file system" in done.outputs[0][1]
    assert "sandbox_violations" not in done.outputs[0][1]


def test_doctor_names_the_sandbox(machine: Machine) -> None:
    done = subprocess.run(
        [PARLEY, "doctor"], cwd=machine.work, env=machine.environment, capture_output=True, text=True, check=False
    )

    assert "sandbox" in done.stdout
