"""A turn that waits for an answer when its engine ends continues in another one, with the same question."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from parley.engine.session import recover
from tests.helpers.environment import base_environment
from tests.helpers.mcp import own
from tests.helpers.session import Json, SessionHarness

PARLEY = str(Path(sys.executable).with_name("parley"))
ARGV = ("--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
ASKING = ("--permission-prompt-tool", "stdio")
CALL = "{ name = 'Bash', id = 't1', input = { command = 'echo x >> ran' } }"
READ = "{ name = 'Glob', id = 't0', input = { pattern = '*.none' } }"
LATER = "{ name = 'Bash', id = 't2', input = { command = 'echo y >> ran' } }"


class Engine:
    """The real executable, with a store of its own and a working directory."""

    def __init__(self, home: Path, cwd: Path, *argv: str) -> None:
        cwd.mkdir(exist_ok=True)
        self.lines: list[Json] = []
        self._process = subprocess.Popen(
            [PARLEY, *ARGV, "--model", f"scripted:{home / 'script.toml'}", *argv],
            cwd=cwd,
            env={"HOME": str(home), **base_environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def say(self, line: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, kind: str) -> Json:
        assert self._process.stdout is not None
        while True:
            line: Json = json.loads(self._process.stdout.readline())
            self.lines.append(line)
            if line["type"] == kind:
                return line

    def answer(self, question: Json, **answer: Any) -> None:
        response = {"subtype": "success", "request_id": question["request_id"], "response": answer}
        self.say({"type": "control_response", "response": response})

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def end(self) -> list[Json]:
        rest, _ = self._process.communicate(timeout=60)
        self.lines += [json.loads(line) for line in rest.splitlines()]
        return self.lines


def prompt(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


INITIALIZE = {"type": "control_request", "request_id": "i", "request": {"subtype": "initialize"}}


def script(home: Path, *turns: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "script.toml").write_text("\n".join(f"[[turn]]\n{turn}" for turn in turns))


def left_waiting(home: Path, cwd: Path, tools: str = CALL) -> tuple[str, Json]:
    """A session whose engine was killed while it asked: its id, and the question."""
    script(home, f"text = 'I will.'\ntools = [{tools}]")
    engine = Engine(home, cwd, *ASKING)
    engine.say(prompt("go"))
    question = engine.hear("control_request")
    engine.kill()
    return engine.lines[0]["session_id"], question


def transcript(home: Path, session_id: str) -> bytes:
    [path] = home.glob(f".claude/projects/*/{session_id}.jsonl")
    return path.read_bytes()


def test_another_process_elsewhere_offers_the_same_question_and_the_approval_executes_once(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "b"
    session_id, question = left_waiting(home, tmp_path / "a")
    script(home, "text = 'Done.'")
    engine = Engine(home, elsewhere, *ASKING, "--resume", session_id)
    engine.say(INITIALIZE)
    again = engine.hear("control_request")
    engine.answer(again, behavior="allow", updatedInput=again["request"]["input"])
    result = engine.hear("result")
    lines = engine.end()

    assert again["request_id"] == question["request_id"]
    for field in ("tool_use_id", "tool_name", "input", "input_sha256"):
        assert again["request"][field] == question["request"][field]
    assert (elsewhere / "ran").read_text() == "x\n"
    assert not (tmp_path / "a" / "ran").exists()
    assert result["result"] == "Done."
    assert [line["type"] for line in lines].count("result") == 1


def test_nothing_is_written_before_the_host_has_said_something(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session_id, _ = left_waiting(home, tmp_path / "a")
    before = transcript(home, session_id)

    assert Engine(home, tmp_path / "a", *ASKING, "--resume", session_id).end() == []
    assert transcript(home, session_id) == before


def test_without_a_client_to_ask_it_is_denied_and_the_turn_continues(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    session_id, _ = left_waiting(home, cwd)
    script(home, "text = 'Not done.'")
    engine = Engine(home, cwd, "--resume", session_id)
    engine.say(INITIALIZE)
    result = engine.hear("result")
    engine.end()

    assert result["result"] == "Not done."
    assert [denial["tool_use_id"] for denial in result["permission_denials"]] == ["t1"]
    assert not (cwd / "ran").exists()


def test_a_prompt_that_comes_meanwhile_waits_for_the_question(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    session_id, question = left_waiting(home, cwd)
    script(home, "text = 'Both.'")
    engine = Engine(home, cwd, *ASKING, "--resume", session_id)
    engine.say({**prompt("and this"), "uuid": "11111111-1111-4111-8111-111111111111"})
    again = engine.hear("control_request")
    engine.answer(again, behavior="allow", updatedInput=again["request"]["input"])
    result = engine.hear("result")
    engine.end()

    assert again["request_id"] == question["request_id"]
    assert (cwd / "ran").read_text() == "x\n"
    assert result["result"] == "Both."
    assert result["user_message_uuids"] == ["11111111-1111-4111-8111-111111111111"]


def test_calls_after_the_question_run_and_those_before_it_do_not_run_again(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    session_id, _ = left_waiting(home, cwd, f"{READ}, {CALL}, {LATER}")
    script(home, "text = 'Done.'")
    engine = Engine(home, cwd, *ASKING, "--resume", session_id)
    engine.say(INITIALIZE)
    for _ in range(2):
        asked = engine.hear("control_request")
        engine.answer(asked, behavior="allow", updatedInput=asked["request"]["input"])
    engine.hear("result")
    lines = engine.end()

    answered = [
        block["tool_use_id"]
        for line in lines
        if line["type"] == "user"
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert answered == ["t1", "t2"]
    assert (cwd / "ran").read_text() == "x\ny\n"


def test_an_interrupt_ends_a_turn_that_was_taken_up(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    session_id, _ = left_waiting(home, cwd)
    script(home, "text = 'Next.'")
    engine = Engine(home, cwd, *ASKING, "--resume", session_id)
    engine.say(INITIALIZE)
    engine.hear("control_request")
    engine.say({"type": "control_request", "request_id": "x", "request": {"subtype": "interrupt"}})
    assert engine.hear("result")["subtype"] == "error_during_execution"
    engine.say(prompt("next"))
    assert engine.hear("result")["result"] == "Next."
    engine.end()
    assert not (cwd / "ran").exists()


def test_a_fork_leaves_the_question_to_the_session_it_comes_from(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    session_id, _ = left_waiting(home, cwd)
    script(home, "text = 'Forked.'")
    engine = Engine(home, cwd, *ASKING, "--resume", session_id, "--fork-session")
    engine.say(INITIALIZE)
    engine.say(prompt("go on"))
    engine.hear("result")
    fork = engine.lines[-1]["session_id"]
    lines = engine.end()

    assert [line for line in lines if line["type"] == "control_request"] == []
    assert recover.NOT_RUN.encode() in transcript(home, fork)


async def test_a_silent_prompt_waits_for_the_turn_that_continues(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    session_id, _ = left_waiting(home, cwd)

    harness = SessionHarness(cwd, "[[turn]]\ntext = 'On.'\n", resume=session_id, permission_prompt_tool="stdio")
    harness.environment["HOME"] = str(home)
    async with harness:
        harness.prompt("a note", shouldQuery=False)
        asked = await harness.receive("control_request")
        response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")
        _, calling, result, said, note = harness.session.journal.history.render()

    assert calling["content"][-1]["id"] == result["content"][0]["tool_use_id"] == "t1"
    assert said["content"][0]["text"] == "On."
    assert note["content"][0]["text"] == "a note"


def hooked(*callbacks: str) -> Json:
    """A handshake that registers callbacks before calls."""
    hooks = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": [callback]} for callback in callbacks]}
    return {"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", "hooks": hooks}}


def test_callbacks_before_a_call_are_asked_the_same_again_under_the_same_ids(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    script(home, f"tools = [{CALL}]")
    engine = Engine(home, cwd, "--permission-mode", "acceptEdits", "--allowedTools", "Bash")
    engine.say(hooked("hook_0", "hook_1"))
    engine.say(prompt("go"))
    asked = [engine.hear("control_request"), engine.hear("control_request")]
    engine.kill()
    session_id = next(line["session_id"] for line in engine.lines if line.get("session_id"))

    script(home, "text = 'Done.'")
    engine = Engine(home, cwd, "--permission-mode", "acceptEdits", "--allowedTools", "Bash", "--resume", session_id)
    engine.say(hooked("hook_0", "hook_1"))
    again = [engine.hear("control_request"), engine.hear("control_request")]
    for one in again:
        engine.answer(one)
    result = engine.hear("result")
    engine.end()

    before, after = ({one["request"]["callback_id"]: one["request_id"] for one in asks} for asks in (asked, again))
    assert (after, set(after)) == (before, {"hook_0", "hook_1"})
    assert [one["request"]["input"]["tool_use_id"] for one in again] == ["t1", "t1"]
    assert ((cwd / "ran").read_text(), result["result"]) == ("x\n", "Done.")


def test_a_question_of_a_server_that_ended_with_its_engine_is_reported_and_not_asked_again(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "a"
    script(home, "tools = [{ name = 'mcp__workshop__greet', id = 't1', input = {} }]")
    servers = json.dumps({"mcpServers": {"workshop": own("greeter.py")}})
    argv = ("--mcp-config", servers, "--allowedTools", "mcp__workshop__greet")
    engine = Engine(home, cwd, *argv)
    engine.say(prompt("go"))
    assert engine.hear("control_request")["request"]["message"] == "What is your name?"
    engine.kill()
    session_id = next(line["session_id"] for line in engine.lines if line.get("session_id"))

    script(home, "text = 'I see.'", "text = 'Fine.'")
    engine = Engine(home, cwd, *argv, "--resume", session_id)
    engine.say(prompt("and?"))
    engine.hear("result")
    engine.say(prompt("again"))
    engine.hear("result")
    lines = engine.end()

    (told,) = [line["content"] for line in lines if line.get("tag") == "question_lost"]
    assert told.startswith("The MCP server workshop asked: 'What is your name?'. The engine and the server exited")
    assert not any(line["type"] == "control_request" for line in lines)
    kept = transcript(home, session_id).decode()
    assert kept.count("The MCP server workshop asked") == 1
    assert recover.UNKNOWN in kept
