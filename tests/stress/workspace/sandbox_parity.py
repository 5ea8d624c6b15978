"""The official SDKs with `sandbox` options, on our engine and on the original: what runs, asks and gets out.

    python -m tests.stress.workspace.sandbox_parity                         # ours, beside what the original did
    python -m tests.stress.workspace.sandbox_parity --original PATH         # both, and record what the original does

Each group is one session with its own options. The model makes one Bash call after the other; the table has a row for
each. The original needs bubblewrap, socat and ripgrep. What it did is in `sandbox_parity.json`, and where we differ on
purpose, `DIFFERENCES` has the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from parley.models.base import ModelRequest
from parley.models.script import ScriptedCall, ScriptedTurn, play
from parley.testing.model_server import SourceAnswer, running
from tests.compat.harness import ENGINE
from tests.compat.install import Client
from tests.helpers.environment import base_environment

RECORD = Path(__file__).with_name("sandbox_parity.json")
DRIVERS = Path(__file__).parents[2] / "compat" / "drivers"
RUN_SECONDS = 400
Json = dict[str, Any]
CURL = 'curl -sS -m 5 --noproxy "" -x "$HTTP_PROXY" http://localhost:{port}/{name}'


@dataclass(frozen=True)
class Step:
    """One Bash call, and the effect that is looked for."""

    name: str
    command: str
    effect: str
    """`file PATH`: it exists with the name of the step in it. `said TEXT`: the result has it. `heard`: a server was
    reached."""
    input: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """One session."""

    name: str
    sandbox: Json
    steps: tuple[Step, ...]
    answers: Json = field(default_factory=dict)
    """`allow` for a tool that may be used when the host is asked; others are denied."""
    settings: Json = field(default_factory=dict)
    mode: str = "default"
    without_bubblewrap: bool = False


def mark(path: str) -> str:
    """A command that leaves the name of the step in a file."""
    return f"echo {{name}} > {path}"


ENABLED = {"enabled": True, "autoAllowBashIfSandboxed": True}
OUTSIDE = {"dangerouslyDisableSandbox": True}
UNIX = 'python3 -c \'import socket; s = socket.socket(socket.AF_UNIX); s.connect("{unix}"); s.send(b"{name}")\''

GROUPS = (
    Group(
        "auto-allowed",
        ENABLED,
        (
            Step("write_in_project", mark("made.txt"), "file {project}/made.txt"),
            Step("write_outside", mark("{outside}/out.txt"), "file {outside}/out.txt"),
            Step("write_home", mark("~/.profile"), "file {home}/.profile"),
            Step("read_outside", "cat {outside}/note.txt", "said a-note"),
            Step("private_temp", "echo {name} > $TMPDIR/t; cat $TMPDIR/t", "said private_temp"),
            Step("shared_temp", mark("{temp}/shared.txt"), "file {temp}/shared.txt"),
            Step(
                "git_hook",
                "mkdir -p .git/hooks; " + mark(".git/hooks/pre-commit"),
                "file {project}/.git/hooks/pre-commit",
            ),
            Step("git_config", "echo '[x] {name} = 1' >> .git/config", "file {project}/.git/config"),
            Step("git_commit", "git add made.txt && git commit -qm {name} && git log", "said git_commit"),
            Step(
                "settings", "mkdir -p .claude; " + mark(".claude/settings.json"), "file {project}/.claude/settings.json"
            ),
            Step("mcp_config", mark(".mcp.json"), "file {project}/.mcp.json"),
            Step("shell_profile", mark(".bashrc"), "file {project}/.bashrc"),
            Step(
                "editor_tasks", "mkdir -p .vscode; " + mark(".vscode/tasks.json"), "file {project}/.vscode/tasks.json"
            ),
            Step("proxy_unknown_host", CURL, "heard"),
            Step("direct_connection", "curl -sS -m 5 --noproxy '*' http://127.0.0.1:{port}/{name}", "heard"),
            Step("unix_socket", UNIX, "heard"),
            Step(
                "see_engine", "cat /proc/*/environ | tr '\\0' '\\n' | grep ^ANTHROPIC_API_KEY", "said a-key-for-tests"
            ),
        ),
    ),
    Group(
        "defaults",
        {"enabled": True},
        (Step("default_question", mark("d.txt"), "file {project}/d.txt"),),
        {"Bash": "allow"},
    ),
    Group(
        "asked",
        {"enabled": True, "autoAllowBashIfSandboxed": False},
        (Step("denied_command", mark("no.txt"), "file {project}/no.txt"),),
    ),
    Group(
        "outside requested",
        ENABLED,
        (Step("approved_outside", mark("{outside}/d1.txt"), "file {outside}/d1.txt", OUTSIDE),),
        {"Bash": "allow"},
    ),
    Group(
        "outside refused",
        ENABLED,
        (Step("denied_outside", mark("{outside}/d2.txt"), "file {outside}/d2.txt", OUTSIDE),),
    ),
    Group(
        "outside closed",
        {**ENABLED, "allowUnsandboxedCommands": False},
        (Step("closed_outside", mark("{outside}/d3.txt"), "file {outside}/d3.txt", OUTSIDE),),
        {"Bash": "allow"},
    ),
    Group(
        "files",
        {
            **ENABLED,
            "filesystem": {
                "allowWrite": ["{outside}"],
                "denyWrite": ["{outside}/frozen", "{project}/frozen"],
                "denyRead": ["{project}/private.txt", "{outside}/hidden"],
                "allowRead": ["{outside}/hidden/shown"],
            },
        },
        (
            Step("allow_write", mark("{outside}/w.txt"), "file {outside}/w.txt"),
            Step("deny_write_in_allowed", mark("{outside}/frozen/w.txt"), "file {outside}/frozen/w.txt"),
            Step("deny_write_in_project", mark("frozen/w.txt"), "file {project}/frozen/w.txt"),
            Step("deny_read_file", "cat private.txt", "said a-secret"),
            Step("deny_read_folder", "cat {outside}/hidden/inner.txt", "said a-secret"),
            Step("allow_read_in_denied", "cat {outside}/hidden/shown/inner.txt", "said a-secret"),
        ),
    ),
    Group(
        "allowed domain",
        {**ENABLED, "network": {"allowedDomains": ["localhost"]}},
        (Step("allowed_host", CURL, "heard"),),
    ),
    Group(
        "denied domain",
        {**ENABLED, "network": {"allowedDomains": ["localhost"], "deniedDomains": ["localhost"]}},
        (Step("denied_host", CURL, "heard"),),
        {"SandboxNetworkAccess": "allow"},
    ),
    Group(
        "strict list",
        {**ENABLED, "network": {"strictAllowlist": True}},
        (Step("strict_host", CURL, "heard"),),
        {"SandboxNetworkAccess": "allow"},
    ),
    Group(
        "approved host",
        ENABLED,
        (Step("approved_host", CURL, "heard"), Step("approved_host_again", CURL, "heard")),
        {"SandboxNetworkAccess": "allow"},
    ),
    Group(
        "unix sockets",
        {**ENABLED, "network": {"allowAllUnixSockets": True}},
        (Step("allowed_unix_socket", UNIX, "heard"),),
    ),
    Group(
        "own proxy",
        {**ENABLED, "network": {"httpProxyPort": "{own_proxy}"}},
        (Step("own_proxy", 'curl -sS -m 5 -x "$HTTP_PROXY" http://anything.example/{name}', "heard"),),
    ),
    Group(
        "excluded",
        {**ENABLED, "excludedCommands": ["tee *"]},
        (
            Step("excluded_command", "tee {outside}/excluded_command.txt", "file {outside}/excluded_command.txt"),
            Step(
                "excluded_with_cd",
                "cd {outside} && tee {outside}/excluded_with_cd.txt",
                "file {outside}/excluded_with_cd.txt",
            ),
            Step(
                "excluded_in_chain", "true; tee {outside}/excluded_in_chain.txt", "file {outside}/excluded_in_chain.txt"
            ),
        ),
        {"Bash": "allow"},
    ),
    Group(
        "off",
        {"enabled": False},
        (Step("not_enabled", mark("{outside}/off.txt"), "file {outside}/off.txt"),),
        {"Bash": "allow"},
    ),
    Group(
        "no file rules",
        {**ENABLED, "filesystem": {"disabled": True}},
        (
            Step("files_open", mark("{outside}/open.txt"), "file {outside}/open.txt"),
            Step("files_open_network_closed", "curl -sS -m 5 --noproxy '*' http://127.0.0.1:{port}/{name}", "heard"),
        ),
    ),
    Group(
        "rules",
        ENABLED,
        (
            Step("deny_rule", "tee {project}/deny_rule.txt", "file {project}/deny_rule.txt"),
            Step("ask_rule", "touch ask_rule.txt; echo {name} > ask_rule.txt", "file {project}/ask_rule.txt"),
            Step("web_rule", CURL, "heard"),
            Step("read_rule", "cat private.txt", "said a-secret"),
            Step("edit_rule", mark("{outside}/edit.txt"), "file {outside}/edit.txt"),
        ),
        settings={
            "permissions": {
                "deny": ["Bash(tee:*)", "Read(./private.txt)"],
                "ask": ["Bash(touch:*)"],
                "allow": ["WebFetch(domain:localhost)", "Edit(/{outside}/**)"],
            }
        },
    ),
    Group(
        "credentials",
        {
            **ENABLED,
            "credentials": {
                "envVars": [{"name": "PARITY_TOKEN", "mode": "deny"}],
                "files": [{"path": "{outside}/note.txt", "mode": "deny"}],
            },
        },
        (
            Step("denied_variable", 'echo "[$PARITY_TOKEN]"', "said a-token"),
            Step("denied_credential_file", "cat {outside}/note.txt", "said a-note"),
        ),
    ),
    Group(
        "bypass",
        ENABLED,
        (
            Step("bypass_write_outside", mark("{outside}/b1.txt"), "file {outside}/b1.txt"),
            Step("bypass_unknown_host", CURL, "heard"),
            Step("bypass_outside_requested", mark("{outside}/b2.txt"), "file {outside}/b2.txt", OUTSIDE),
        ),
        mode="bypassPermissions",
    ),
    Group(
        "unavailable",
        {**ENABLED, "failIfUnavailable": True},
        (Step("required_but_missing", mark("{outside}/u.txt"), "file {outside}/u.txt"),),
        without_bubblewrap=True,
    ),
)
ASKS_FIRST = "Parley asks before a command writes to a protected file, although the sandbox would refuse it"
DIFFERENCES = {
    **dict.fromkeys(("write_home", "git_hook", "settings", "mcp_config", "shell_profile", "editor_tasks"), ASKS_FIRST),
    "see_engine": "commands in Parley's sandbox see no other processes, so there is nothing to ask about",
    "web_rule": "a rule denies reading a file, and what `$HTTP_PROXY` names is not known: Parley asks",
    "bypass_unknown_host": "Parley lets no mode open the network: it asks, or refuses the host",
    "bypass_outside_requested": "Parley asks in every mode before a command leaves the sandbox",
    "required_but_missing": "without bubblewrap, Parley uses Landlock; the command runs, and cannot write outside",
}
"""Where we differ on purpose (docs/sandbox.md)."""


class Ground:
    """The folders and servers of one session."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.heard: set[str] = set()
        self._ended = threading.Event()
        self.names = {key: str(base / key) for key in ("project", "outside", "home", "temp", "unix")}
        for key in ("project", "outside", "home", "temp"):
            (base / key).mkdir()
        for path, text in (
            ("outside/note.txt", "a-note"),
            ("outside/hidden/inner.txt", "a-secret"),
            ("outside/hidden/shown/inner.txt", "a-secret"),
            ("outside/frozen/x", ""),
            ("project/frozen/x", ""),
            ("project/private.txt", "a-secret"),
        ):
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_text(text)
        git = partial(subprocess.run, cwd=base / "project", check=True, capture_output=True)
        git(["git", "init", "-q"])
        for key, value in (("user.name", "P"), ("user.email", "p@example.com")):
            git(["git", "config", key, value])

    @contextlib.contextmanager
    def servers(self) -> Iterator[None]:
        with contextlib.ExitStack() as opened:
            for key, family, address in (
                ("port", socket.AF_INET, ("127.0.0.1", 0)),
                ("own_proxy", socket.AF_INET, ("127.0.0.1", 0)),
                ("", socket.AF_UNIX, self.names["unix"]),
            ):
                listener = opened.enter_context(socket.socket(family))
                listener.bind(address)
                listener.listen()
                listener.settimeout(0.1)
                if key:
                    self.names[key] = str(listener.getsockname()[1])
                threading.Thread(target=self._hear, args=(listener,), daemon=True).start()
            yield
            self._ended.set()

    def _hear(self, listener: socket.socket) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(2)
                self.heard |= {word.decode() for word in re.findall(rb"\w+", connection.recv(4096))}
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    def fill(self, value: Any, **more: str) -> Any:
        """Put the paths and ports into texts of a group."""
        if isinstance(value, str):
            text = value
            for key, word in {**self.names, **more}.items():
                text = text.replace("{" + key + "}", word)
            return int(text) if value == "{own_proxy}" else text
        if isinstance(value, dict):
            return {key: self.fill(item, **more) for key, item in value.items()}
        return [self.fill(item, **more) for item in value] if isinstance(value, list) else value


class Calls:
    """A model that makes the calls of a group one after the other, whatever else it is asked."""

    names = ("claude-sonnet-4-5",)

    def __init__(self, inputs: list[Json]) -> None:
        self._inputs = inputs

    def answer(self, request: ModelRequest) -> SourceAnswer:
        done = sum(
            block.get("type") == "tool_result"
            for message in request.messages
            for block in (message["content"] if isinstance(message["content"], list) else [])
        )
        turn = ScriptedTurn(text="done")
        if done < len(self._inputs) and request.tools:
            call = ScriptedCall(name="Bash", id=f"toolu_step_{done:02}", input=self._inputs[done])
            turn = ScriptedTurn(tools=[call])
        return play(turn, request, lambda: os.urandom(8).hex()), None


def run_group(group: Group, client: Client, engine: str, base: Path) -> dict[str, str]:
    """Play one session. Returns what became of each step, in words."""
    ground = Ground(base)
    with ground.servers():
        inputs = [{"command": ground.fill(step.command, name=step.name), **step.input} for step in group.steps]
        with running(Calls(inputs)) as server:
            told = drive(group, client, engine, ground, server.url)
        return {step.name: describe(index, step, ground, told) for index, step in enumerate(group.steps)}


def drive(group: Group, client: Client, engine: str, ground: Ground, url: str) -> list[Any]:
    environment = {
        **base_environment(),
        "HOME": ground.names["home"],
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "a-key-for-tests",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "PARITY_TOKEN": "a-token",
    }
    if group.without_bubblewrap:
        environment["PATH"] = hide_programs(ground.base / "bin", "bwrap", "socat")
    settings = ground.fill(group.settings)
    sandbox = ground.fill(group.sandbox)
    task: Json = {"engine": engine, "partial": False, "answers": group.answers}
    program = client.program()
    assert program is not None
    if client.runs_with == "node":
        more = {"sandbox": sandbox, "permissionMode": group.mode, "settingSources": [], "settings": settings}
        if group.mode == "bypassPermissions":
            more["allowDangerouslySkipPermissions"] = True
        task |= {"packages": str(client.place), "more": more}
        argv = [program, str(DRIVERS / "sandbox.mjs"), json.dumps(task)]
    else:
        options = {"sandbox": sandbox, "permission_mode": group.mode, "setting_sources": []}
        task["options"] = {**options, "settings": json.dumps(settings) if settings else None}
        argv = [program, str(DRIVERS / "sandbox.py"), json.dumps(task)]
    done = subprocess.run(
        argv,
        env=environment,
        cwd=ground.names["project"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    if os.environ.get("PARITY_SHOW"):
        sys.stderr.write(f"{group.name}\n{done.stdout}\n{done.stderr}\n")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def hide_programs(folder: Path, *hidden: str) -> str:
    """A search path on which programs are missing."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if os.path.isdir(place) else ():
            if program.name not in hidden and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


def describe(index: int, step: Step, ground: Ground, told: list[Any]) -> str:
    """For example `asked Bash, ran, effect`."""
    call, result, asked, is_current = f"toolu_step_{index:02}", None, [], False
    for kind, value in told:
        text = json.dumps(value)
        if kind == "message" and ('"tool_use"' in text or '"ToolUseBlock"' in text):
            is_current = call in text
        if kind == "asked" and is_current:
            asked.append(value[0])
        if kind == "message" and call in text and ('"tool_result"' in text or '"ToolResultBlock"' in text):
            result = text
    how, _, where = ground.fill(step.effect).partition(" ")
    if how == "file":
        has_effect = os.path.isfile(where) and (step.name in Path(where).read_text() or step.name in where)
    else:
        has_effect = step.name in ground.heard if how == "heard" else where in (result or "")
    words = [f"asked {name}" for name in asked]
    words.append("not run" if result is None else "answered")
    return ", ".join([*words, "effect" if has_effect else "no effect"])


def run_engine(engine: str, clients: list[Client], groups: tuple[Group, ...] = GROUPS) -> dict[str, dict[str, str]]:
    """What became of each step, for each client."""
    found: dict[str, dict[str, str]] = {}
    for client in clients:
        for group in groups:
            base = Path(tempfile.mkdtemp(prefix="parity-", dir="/var/tmp"))
            try:
                rows = run_group(group, client, engine, base)
            finally:
                shutil.rmtree(base, ignore_errors=True)
            for name, words in rows.items():
                found.setdefault(name, {})[client.runs_with.rpartition("/")[2]] = words
    return found


def compare(ours: dict[str, dict[str, str]], original: dict[str, str]) -> list[str]:
    """The rows that differ without a reason."""
    wrong = []
    for name, by_client in ours.items():
        for client, words in by_client.items():
            if words != original.get(name) and name not in DIFFERENCES:
                wrong.append(f"{name} ({client}): ours {words!r}, the original {original.get(name)!r}")
    return wrong


def main() -> int:
    from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT, ensure, say

    parser = argparse.ArgumentParser(description="Compare sandbox options with the original.")
    parser.add_argument("--original", help="the original executable")
    parser.add_argument("--group", action="append", help="only these groups")
    given = parser.parse_args()
    groups = tuple(group for group in GROUPS if not given.group or group.name in given.group)
    clients = [CURRENT_PYTHON, TYPESCRIPT]
    for client in clients:
        ensure(client, say)
    record: dict[str, str] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if given.original:
        for name, by_client in run_engine(given.original, clients, groups).items():
            if len(set(by_client.values())) > 1:
                sys.stdout.write(f"the original differs by client in {name}: {by_client}\n")
            record[name] = by_client["python"]
        RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    ours = run_engine(str(ENGINE), clients, groups)
    for name, by_client in ours.items():
        sys.stdout.write(f"{name:28} {record.get(name, '?'):45} {by_client}  {DIFFERENCES.get(name, '')}\n")
    wrong = compare(ours, record)
    sys.stdout.write("\n".join(wrong) + ("\n" if wrong else ""))
    sys.stdout.write(f"{len(ours)} rows, {len(wrong)} differences without a reason\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
