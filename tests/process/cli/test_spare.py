"""`--await-claim`: a process that is started before its session is known, and claimed later."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
STREAMS = ("-p", "--verbose", "--model", "offline", "--input-format", "stream-json", "--output-format", "stream-json")


class SpareProcess:
    """A parked engine in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], *argv: str) -> None:
        self.parking = folder / "parking"
        self.parking.mkdir(exist_ok=True)
        self.seen: list[Json] = []
        self._count = 0
        self._stderr = (folder / "stderr").open("wb+")
        self.process = subprocess.Popen(
            [PARLEY, *STREAMS, "--await-claim", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=self.parking,
            env={**environment, "IS_SANDBOX": "1"},
        )

    def send(self, *lines: Json) -> None:
        """Several lines go out in one write."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        self.process.stdin.flush()

    def until(self, kind: str) -> Json:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line: Json = json.loads(raw)
            self.seen.append(line)
            if line["type"] == kind:
                return line
        raise AssertionError(f"no {kind}: {self.end()}")

    def make_request(self, subtype: str, **fields: Any) -> Json:
        self._count += 1
        return {"type": "control_request", "request_id": f"r{self._count}", "request": {"subtype": subtype, **fields}}

    def request(self, subtype: str, **fields: Any) -> Json:
        self.send(self.make_request(subtype, **fields))
        found: Json = self.until("control_response")["response"]
        return found

    def claim(self, cwd: Path | str, **fields: Any) -> Json:
        return self.request("claim_session", cwd=str(cwd), **fields)

    def prompt(self, text: str) -> Json:
        self.send(prompt(text))
        return self.until("result")

    def end(self) -> tuple[int, str]:
        """Close stdin; returns the exit code and stderr."""
        self.process.communicate(timeout=PATIENCE_SECONDS)
        self._stderr.seek(0)
        return self.process.returncode, self._stderr.read().decode()

    def close(self) -> None:
        with self.process, self._stderr:
            self.process.kill()


def prompt(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., SpareProcess]]:
    started: list[SpareProcess] = []

    def park(*argv: str, **more: str) -> SpareProcess:
        started.append(SpareProcess(tmp_path, {**environment, **more}, *argv))
        return started[-1]

    yield park
    for spare in started:
        spare.close()


def transcripts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "home" / ".claude" / "projects").glob("*/*.jsonl"))


def write_json(path: Path, value: Json) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


# Claims.


def test_a_claimed_process_is_a_session_in_the_claimed_folder(
    start: Callable[..., SpareProcess], project: Path, tmp_path: Path
) -> None:
    (project / "CLAUDE.md").write_text("Be brief.\n")
    (project / ".claude" / "commands").mkdir(parents=True)
    (project / ".claude" / "commands" / "ship.md").write_text("Ship it.\n")
    spare = start()
    parked = spare.request("initialize")["response"]
    assert "ship" not in [command["name"] for command in parked["commands"]]
    assert transcripts(tmp_path) == []

    claimed = spare.claim(project, title="Ship", permission_mode="plan", include_initialize=True)["response"]
    assert (claimed["status"], claimed["cwd"], claimed["sdk_mcp_settled"]) == ("ok", str(project), True)
    assert claimed["parked_ms"] >= 0
    assert "ship" in [command["name"] for command in claimed["initialize"]["commands"]]
    assert claimed["initialize"]["current_permission_mode"] == "plan"

    assert spare.prompt('call Bash {"command": "pwd"}\nshow')["is_error"] is False
    [init] = [line for line in spare.seen if line.get("subtype") == "init"]
    assert (init["cwd"], init["permissionMode"], init["session_id"]) == (str(project), "plan", claimed["session_id"])
    files = spare.request("get_memory_dialog")["response"]["files"]
    assert (str(project / "CLAUDE.md"), True) in [(file["path"], file["exists"]) for file in files]
    assert "Ship" in str(spare.request("get_status")["response"])
    assert "not_a_spare" in spare.claim(project)["error"]
    assert spare.end()[0] == 0
    [transcript] = transcripts(tmp_path)
    assert transcript.stem == claimed["session_id"]
    assert str(project) in transcript.read_text()


def test_what_follows_the_claim_in_the_same_write_reaches_the_session(
    start: Callable[..., SpareProcess], project: Path
) -> None:
    spare = start()
    spare.send(
        spare.make_request("initialize"),
        spare.make_request("claim_session", cwd=str(project)),
        spare.make_request("set_permission_mode", mode="plan"),
        prompt("say done"),
    )
    assert spare.until("result")["result"] == "done"
    assert [line["permissionMode"] for line in spare.seen if line.get("subtype") == "init"] == ["plan"]


def test_what_was_set_while_parked_is_in_force_after_the_claim(
    start: Callable[..., SpareProcess], project: Path
) -> None:
    spare = start("--permission-mode", "bypassPermissions")
    spare.request("initialize", appendSystemPrompt="One.", agents={"a": {"description": "x", "prompt": "y"}})
    assert "unknown" in spare.request("set_permission_mode", mode="nonsense")["error"]
    spare.request("apply_flag_settings", settings={"permissions": {"deny": ["Bash"]}})
    claimed = spare.claim(
        project,
        append_system_prompt="Two.",
        agents={"b": {"description": "x", "prompt": "y"}},
        additional_directories=[".", "missing"],
        include_initialize=True,
    )["response"]
    agents = [agent["name"] for agent in claimed["initialize"]["agents"]]
    assert {"a", "b"} <= set(agents)
    assert claimed["initialize"]["current_permission_mode"] == "bypassPermissions"

    spare.prompt('call Bash {"command": "touch ran"}\nshow')
    assert not (project / "ran").exists()
    rules = spare.request("list_permission_rules")["response"]["state"]
    assert "Bash" in str(rules)


def test_plugins_and_managed_settings_of_the_handshake_hold_after_the_claim(
    start: Callable[..., SpareProcess], project: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    write_json(plugin / ".claude-plugin" / "plugin.json", {"name": "tools"})
    (plugin / "commands").mkdir()
    (plugin / "commands" / "ship.md").write_text("Ship it.\n")
    spare = start("--await-initialize", "--managed-settings-in-initialize", "--permission-mode", "bypassPermissions")
    spare.request(
        "initialize",
        plugins=[{"type": "local", "path": str(plugin)}],
        managedSettings={"permissions": {"deny": ["Bash"]}},
    )
    claimed = spare.claim(project, include_initialize=True)["response"]["initialize"]
    assert claimed["plugins_applied"] is True
    assert "tools:ship" in [command["name"] for command in claimed["commands"]]
    spare.prompt('call Bash {"command": "touch ran"}\nshow')
    assert not (project / "ran").exists()


def test_a_warning_about_the_handshake_is_written_once(start: Callable[..., SpareProcess], project: Path) -> None:
    spare = start()
    spare.request("initialize", nonsense=1)
    spare.claim(project)
    spare.prompt("say x")
    notices = [line["content"] for line in spare.seen if line.get("subtype") == "informational"]
    assert notices == ["initialize.nonsense is unknown and has no effect"]
    assert spare.end()[1].count("initialize.nonsense") == 1


def test_a_flag_without_effect_is_reported_to_the_client_after_the_claim(
    start: Callable[..., SpareProcess], project: Path
) -> None:
    spare = start("--chrome")
    spare.claim(project)
    spare.prompt("say Hi.")

    told = [line["content"] for line in spare.seen if line.get("subtype") == "informational"]
    assert told == ["option '--chrome' has no effect in this run"]
    assert spare.end() == (0, f"{told[0]}\n")


def test_a_parked_process_has_no_worktree(run: Any) -> None:
    done = run(*STREAMS, "--await-claim", "--worktree", "one")

    assert done.returncode == 1
    assert "--worktree cannot be combined with --await-claim" in done.stderr


def test_hooks_and_servers_start_at_the_claim_and_not_before(
    start: Callable[..., SpareProcess], project: Path, tmp_path: Path
) -> None:
    note = tmp_path / "starts"
    hook = {"type": "command", "command": f"pwd >> {note}"}
    write_json(tmp_path / "home" / ".claude" / "settings.json", {"hooks": {"SessionStart": [{"hooks": [hook]}]}})
    config = json.dumps({"mcpServers": {"none": {"command": "/nonexistent/server"}}})
    spare = start("--mcp-config", config)
    spare.request("initialize")
    assert spare.request("mcp_status")["response"] == {"mcpServers": []}
    assert not note.exists()

    spare.claim(project)
    spare.prompt("say x")
    assert note.read_text() == f"{project}\n"
    assert [server["name"] for server in spare.request("mcp_status")["response"]["mcpServers"]] == ["none"]


def test_a_claim_can_resume_a_session(start: Callable[..., SpareProcess], project: Path) -> None:
    first = start()
    session_id = first.claim(project)["response"]["session_id"]
    first.prompt("say one")
    assert first.end()[0] == 0

    second = start()
    assert second.claim(project, resume=session_id)["response"]["session_id"] == session_id
    second.prompt("say two")
    exported = second.request("export_conversation")["response"]["text"]
    assert "● one" in exported
    assert "● two" in exported


def test_the_debug_log_of_a_claimed_session_is_written(
    start: Callable[..., SpareProcess], project: Path, tmp_path: Path
) -> None:
    spare = start("--debug-file", str(tmp_path / "debug.txt"))
    spare.claim(project)
    spare.prompt("say x")
    spare.end()
    assert "[wire] > result/success" in (tmp_path / "debug.txt").read_text()


# Refusals.


@pytest.mark.parametrize(
    ("cwd", "fields", "code", "reason"),
    [
        ("missing", {}, "cwd_not_found", "not the absolute path of an existing folder"),
        ("//server/share", {}, "unsafe_path", "network path"),
        ("", {"env": {"PATH": "/tmp"}}, "env_key_not_claimable", "PATH takes effect only when a process starts"),
        ("", {"permission_mode": "nonsense"}, "permission_mode_not_claimable", "unknown permission mode 'nonsense'"),
        ("", {"permission_mode": "bypassPermissions"}, "permission_mode_not_claimable", "--allow-dangerously"),
        ("", {"agents": {"a": {"description": 5}}}, "invalid_request", "agents: "),
        ("", {"resume": "11111111-2222-4333-8444-555555555555"}, "claim_failed", "No conversation found"),
    ],
)
def test_a_claim_that_cannot_be_honoured_is_refused_and_ends_the_process(
    start: Callable[..., SpareProcess], project: Path, tmp_path: Path, cwd: str, fields: Json, code: str, reason: str
) -> None:
    spare = start()
    spare.request("initialize")
    told = spare.claim(cwd if cwd.startswith("/") else project / cwd, **fields)
    assert told["error"].startswith(f"{code}: ")
    assert reason in told["error"]
    assert told["error_code"] == code

    result = spare.prompt("say x")
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
    assert result["errors"][0].startswith("not_claimed: ")
    assert spare.process.wait(timeout=PATIENCE_SECONDS) == 1
    assert "Traceback" not in spare.end()[1]
    assert transcripts(tmp_path) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"env": {"A": "b"}}, "env"),
        ({"model": "offline"}, "model"),
        ({"permissions": {"defaultMode": "plan"}}, "permissions.defaultMode"),
    ],
)
def test_a_folder_whose_settings_decide_the_start_is_refused(
    start: Callable[..., SpareProcess], project: Path, settings: Json, named: str
) -> None:
    write_json(project / ".claude" / "settings.json", settings)
    told = start().claim(project)
    assert told["error_code"] == "project_settings_not_claimable"
    assert f"sets {named}" in told["error"]


def test_the_default_mode_of_a_folder_does_not_matter_if_the_claim_names_a_mode(
    start: Callable[..., SpareProcess], project: Path
) -> None:
    write_json(project / ".claude" / "settings.json", {"permissions": {"defaultMode": "acceptEdits"}})
    spare = start()
    claimed = spare.claim(project, permission_mode="plan", include_initialize=True)["response"]
    assert claimed["initialize"]["current_permission_mode"] == "plan"


def test_a_process_without_a_claim_refuses_prompts_and_stays_parked(
    start: Callable[..., SpareProcess], project: Path
) -> None:
    spare = start()
    assert spare.prompt("say x")["errors"][0].startswith("not_claimed: ")
    assert spare.request("get_plan")["error_code"] == "not_claimed"
    assert spare.request("nonsense")["error_code"] == "not_claimed"
    assert "cwd" in spare.request("claim_session")["error"]
    assert spare.request("claim_session", cwd=5)["error_code"] == "invalid_request"
    assert spare.request("get_binary_version")["subtype"] == "success"

    assert spare.claim(project)["subtype"] == "success"
    assert spare.prompt("say now")["result"] == "now"


# The end.


def test_a_process_that_is_never_claimed_leaves_nothing(start: Callable[..., SpareProcess], tmp_path: Path) -> None:
    spare = start()
    spare.request("initialize")
    assert spare.end() == (0, "")
    assert transcripts(tmp_path) == []
    assert list(spare.parking.iterdir()) == []


def test_a_signal_ends_a_parked_process(start: Callable[..., SpareProcess]) -> None:
    spare = start()
    spare.request("initialize")
    spare.process.send_signal(signal.SIGTERM)
    assert spare.process.wait(timeout=PATIENCE_SECONDS) == 143


def test_a_claim_arrives_on_stdin_only(run: Any) -> None:
    done = run("-p", "--await-claim", "say x")
    assert done.returncode != 0
    assert "--await-claim requires --input-format=stream-json" in done.stderr
