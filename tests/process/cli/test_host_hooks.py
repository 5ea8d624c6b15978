"""The real executable with a client's hooks and later settings: a call that a hook could not check does not run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
PARLEY = str(Path(sys.executable).with_name("parley"))
STREAMS = ("-p", "--verbose", "--model", "offline", "--input-format", "stream-json", "--output-format", "stream-json")
TOUCH = 'call Write {"file_path": "ran.txt", "content": "x"}\nshow'
OPEN = ("--permission-prompt-tool", "stdio")


class Talk:
    """One session of the executable with a client that answers `hook_callback` and `can_use_tool`."""

    def __init__(self, folder: Path, environment: dict[str, str], *argv: str, answer: Callable[[Json], Any]) -> None:
        self._answer = answer
        self.seen: list[Json] = []
        self._stderr = (folder / "stderr").open("wb+")
        self._engine = subprocess.Popen(
            [PARLEY, *STREAMS, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=folder,
            env={**environment, "IS_SANDBOX": "1"},
        )

    def send(self, line: Json) -> None:
        assert self._engine.stdin is not None
        self._engine.stdin.write(json.dumps(line).encode() + b"\n")
        self._engine.stdin.flush()

    def until(self, kind: str) -> Json:
        for line in self._lines():
            if line["type"] == kind:
                return line
        raise AssertionError(f"no {kind}: {self.end()}")

    def _lines(self) -> Iterator[Json]:
        assert self._engine.stdout is not None
        for raw in self._engine.stdout:
            line: Json = json.loads(raw)
            self.seen.append(line)
            if line["type"] == "control_request":
                self._reply(line["request_id"], self._answer(line["request"]))
            yield line

    def _reply(self, request_id: str, answer: Any) -> None:
        response = {"subtype": "success", "request_id": request_id, "response": answer}
        self.send({"type": "control_response", "response": response})

    def request(self, **request: Any) -> Json:
        self.send({"type": "control_request", "request_id": "r", "request": request})
        found: Json = self.until("control_response")["response"]
        return found

    def prompt(self, text: str) -> Json:
        self.send({"type": "user", "message": {"role": "user", "content": text}})
        return self.until("result")

    def results(self) -> list[str]:
        blocks = [block for line in self.seen if line["type"] == "user" for block in line["message"]["content"]]
        return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]

    def end(self) -> str:
        self._engine.communicate(timeout=60)
        with self._stderr:
            self._stderr.seek(0)
            return self._stderr.read().decode()


def guarded(tmp_path: Path, environment: dict[str, str], answer: Callable[[Json], Any]) -> Talk:
    conversation = Talk(tmp_path, environment, "--permission-mode", "bypassPermissions", answer=answer)
    conversation.request(
        subtype="initialize", hooks={"PreToolUse": [{"matcher": "Write", "hookCallbackIds": ["guard"]}]}
    )
    return conversation


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"decision": "approve", "hookSpecificOutput": {"permisionDecision": "deny"}}, "permisionDecision"),
        ({"hookSpecificOutput": {"permissionDecision": "allow"}, "permissionDecision": "deny"}, "permissionDecision"),
        ({"decision": "deny", "hookSpecificOutput": {"permissionDecision": "allow"}}, "denied without a reason"),
        ({"async": True, "hookSpecificOutput": {"permisionDecision": "deny"}}, "permisionDecision"),
        ({"async": True, "decision": "deny"}, "denied without a reason"),
    ],
)
def test_an_answer_that_allows_and_may_deny_as_well_denies(
    tmp_path: Path, environment: dict[str, str], answer: Json, reason: str
) -> None:
    conversation = guarded(tmp_path, environment, lambda request: answer)
    conversation.prompt(TOUCH)
    conversation.end()
    assert not (tmp_path / "ran.txt").exists()
    assert reason in conversation.results()[0]


@pytest.mark.parametrize("echoes", [False, True])
def test_a_callback_that_saw_a_part_of_an_input_cannot_let_it_through(
    tmp_path: Path, environment: dict[str, str], echoes: bool
) -> None:
    def answer(request: Json) -> Json:
        seen = request["input"]["tool_input"]
        return {"hookSpecificOutput": {"permissionDecision": "allow", **({"updatedInput": seen} if echoes else {})}}

    conversation = guarded(tmp_path, environment, answer)
    conversation.prompt(f"call Write {json.dumps({'file_path': 'ran.txt', 'content': 'x' * 1_500_000})}\nshow")
    conversation.end()
    assert not (tmp_path / "ran.txt").exists()
    assert "the hook received only part of it" in conversation.results()[0]


def test_a_misspelt_event_is_reported_to_the_host(tmp_path: Path, environment: dict[str, str]) -> None:
    conversation = Talk(tmp_path, environment, answer=lambda request: {})
    told = conversation.request(subtype="initialize", hooks={"preToolUse": [{"hookCallbackIds": ["guard"]}]})
    conversation.prompt("say x")
    assert "preToolUse" in conversation.end()
    assert told["response"]["hooks_applied"] is False
    [text] = [line["content"] for line in conversation.seen if line.get("subtype") == "informational"]
    assert "'preToolUse' are never called (did you mean PreToolUse?)" in text


def test_more_output_than_is_kept_is_a_failure_of_a_guard(run: Any, tmp_path: Path) -> None:
    noise = "head -c 5000000 /dev/zero | tr '\\0' a; echo; echo '{\"decision\": \"block\"}'"
    entry = {"matcher": "Write", "hooks": [{"type": "command", "command": noise}]}
    settings = json.dumps({"hooks": {"PreToolUse": [entry]}})
    done = run("-p", "--model", "offline", "--permission-mode", "acceptEdits", "--settings", settings, TOUCH)
    assert not (tmp_path / "ran.txt").exists()
    assert "the output is longer than" in done.stderr


@pytest.mark.parametrize(
    ("entry", "hook", "reason"),
    [
        ({}, {"timeout": "10"}, "timeout '10' is not a positive number of seconds"),
        ({}, {"onFailure": "contniue"}, "onFailure must be block or continue, not 'contniue'"),
        ({"macher": "Bash"}, {}, "ignored keys: macher"),
    ],
)
def test_what_is_wrong_with_a_hook_in_settings_is_reported(run: Any, entry: Json, hook: Json, reason: str) -> None:
    group = {**entry, "hooks": [{"type": "command", "command": "true", **hook}]}
    done = run("-p", "--model", "offline", "--settings", json.dumps({"hooks": {"PreToolUse": [group]}}), "say x")
    assert reason in done.stderr
    assert done.stdout.strip() == "x"


def test_a_misspelt_event_in_settings_is_reported_with_its_right_name(run: Any) -> None:
    group = {"hooks": [{"type": "command", "command": "exit 2"}]}
    done = run("-p", "--model", "offline", "--settings", json.dumps({"hooks": {"preToolUse": [group]}}), "say x")
    assert "hooks.preToolUse" in done.stderr
    assert "did you mean PreToolUse?" in done.stderr


DISABLE = {"permissions": {"disableBypassPermissionsMode": "disable"}}


def test_bypass_ends_when_later_settings_disable_it_and_nothing_opens_it_again(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    update = {"type": "setMode", "mode": "bypassPermissions", "destination": "userSettings"}

    def answer(request: Json) -> Json:
        return {"behavior": "allow", "updatedInput": request["input"], "updatedPermissions": [update]}

    conversation = Talk(tmp_path, environment, *OPEN, "--allow-dangerously-skip-permissions", answer=answer)
    conversation.request(subtype="initialize")
    assert conversation.request(subtype="set_permission_mode", mode="bypassPermissions")["subtype"] == "success"
    assert conversation.request(subtype="apply_flag_settings", settings=DISABLE)["subtype"] == "success"
    conversation.prompt(TOUCH)
    again = conversation.request(subtype="set_permission_mode", mode="bypassPermissions")
    conversation.end()
    assert not (tmp_path / "ran.txt").exists()
    assert "the settings disable it" in conversation.results()[0]
    assert "disableBypassPermissionsMode" in again["error"]
    assert not (tmp_path / "home" / ".claude" / "settings.json").exists()


def test_leaving_plan_mode_does_not_return_to_a_bypass_that_was_disabled(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    conversation = Talk(
        tmp_path,
        environment,
        *OPEN,
        "--allow-dangerously-skip-permissions",
        answer=lambda request: {"behavior": "allow", "updatedInput": request["input"]},
    )
    conversation.request(subtype="initialize")
    conversation.request(subtype="set_permission_mode", mode="bypassPermissions")
    conversation.request(subtype="set_permission_mode", mode="plan")
    conversation.request(subtype="apply_flag_settings", settings=DISABLE)
    conversation.prompt('call ExitPlanMode {"plan": "write"}\nshow')
    conversation.end()
    assert [line["permissionMode"] for line in conversation.seen if line.get("subtype") == "status"][-1] == "default"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ('{"hooks": {"PreToolUse": []}, "hooks": {}}', "duplicate key 'hooks'"),
        ('{"permissions": {"deny": ["Bash"], "den\\u0079": []}}', "duplicate key 'deny'"),
        ('{"env": {"A": "1"}, "env": {}}', "duplicate key 'env'"),
    ],
)
def test_a_key_that_settings_have_twice_is_named(run: Any, settings: str, key: str) -> None:
    assert key in run("-p", "--model", "offline", "--settings", settings, "say x").stderr


def test_an_mcp_configuration_that_has_a_key_twice_is_refused(run: Any, tmp_path: Path) -> None:
    servers = '{"mcpServers": {"a": {"command": "true"}, "a": {"command": "false"}}}'
    done = run("-p", "--model", "offline", "--mcp-config", servers, "--", "say x")
    assert (done.returncode, "duplicate key 'a'" in done.stderr) == (1, True)
    (tmp_path / ".mcp.json").write_text(servers)
    assert "duplicate key 'a'" in run("-p", "--model", "offline", "say x").stderr
