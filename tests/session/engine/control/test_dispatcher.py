"""Control requests while things continue: each is answered, and nothing waits for it."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parley.engine.control import session as answers
from parley.engine.session.config import SessionConfig
from parley.workspace.base import RewindReport
from parley.workspace.local import LocalFiles
from tests.helpers.session import Json, SessionHarness

SLOW = '[[turn]]\ntext = "long long long"\nchunk_chars = 2\nevent_delay_ms = 50\n'
DONE = '[[turn]]\ntext = "one"\n[[turn]]\ntext = "two"\n[[turn]]\ntext = "three"\n'
TOUCH = '[[turn]]\ntools = [{name = "Bash", input = {command = "touch x"}, id = "t1"}]\n'
ID = "{0}0000000-0000-4000-8000-000000000000".format


def payload(line: Json) -> Json:
    assert line["response"]["subtype"] == "success", line
    found: Json = line["response"].get("response", {})
    return found


# Attaching again.


async def test_a_client_that_comes_back_finds_the_open_question_and_can_answer_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TOUCH + DONE, permission_prompt_tool="stdio") as harness:
        first = await harness.request("initialize")
        harness.prompt("go")
        asked = await harness.receive("control_request")
        again = await harness.request("initialize")
        response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
        harness.send({"type": "control_response", "response": response})
        result = await harness.receive("result")
        after = await harness.request("initialize")
    pending = [line["response"]["pending_permission_requests"] for line in (first, again, after)]
    assert pending == [[], [asked], []]
    assert again["response"]["pending_user_dialog_requests"] == []
    states = [payload(line)["session_state"] for line in (first, again, after)]
    assert states == ["idle", "requires_action", "idle"]
    assert result["result"] == "one"
    assert (tmp_path / "x").exists()


async def test_a_question_that_was_answered_with_an_error_leaves_the_state_running(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, TOUCH + SLOW, permission_prompt_tool="stdio", include_partial_messages=True)
    harness.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    async with harness:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        response = {"subtype": "error", "request_id": asked["request_id"], "error": "no idea"}
        harness.send({"type": "control_response", "response": response})
        await harness.receive("result")
        await harness.receive_until(lambda line: line.get("state") == "idle")
    states = [line["state"] for line in harness.messages("system") if line["subtype"] == "session_state_changed"]
    assert states == ["running", "requires_action", "running", "idle"]


ASKS_BEHIND = (
    "[[turn]]\ntools = [{ name = 'Agent', input = { description = 'd', prompt = 'look', "
    "subagent_type = 'general-purpose', run_in_background = true } }]\n"
    "[[turn]]\nwhen = 'look'\ntools = [{ name = 'Bash', input = { command = 'touch x' } }]\n"
)


@pytest.mark.parametrize("by", ["an answer", "a stop"])
async def test_the_state_is_not_idle_while_a_background_agent_asks(tmp_path: Path, by: str) -> None:
    harness = SessionHarness(
        tmp_path, ASKS_BEHIND + SLOW + DONE, permission_prompt_tool="stdio", allowed_tools=("Agent",)
    )
    harness.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    async with harness:
        harness.prompt("go")
        asked = await harness.receive("control_request")
        if not any(harness.messages("result")):
            await harness.receive("result")
        assert payload(await harness.request("initialize"))["session_state"] == "requires_action"
        told = len(harness.lines)
        assert "idle" not in [line.get("state") for line in harness.lines]
        if by == "a stop":
            task = next(line["task_id"] for line in harness.messages("system") if line["subtype"] == "task_started")
            await harness.request("stop_task", task_id=task)
        else:
            response = {"subtype": "success", "request_id": asked["request_id"], "response": {"behavior": "allow"}}
            harness.send({"type": "control_response", "response": response})
        await harness.receive_until(lambda line: line.get("subtype") == "session_state_changed")
        states = [line["state"] for line in harness.lines[told:] if line.get("subtype") == "session_state_changed"]
        assert states[0] == "idle"


# Answers that take their time.


class Gate:
    """A rewind that waits until it is let through, in a thread, as a slow disk would have it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.open = threading.Event()
        monkeypatch.setattr(LocalFiles, "rewind", self._rewind)

    def _rewind(self, user_message_id: str, *, dry_run: bool, with_diffs: bool = False) -> RewindReport:
        self.started.append(user_message_id)
        self.open.wait(60)
        return RewindReport(possible=True)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def rewinding(folder: Path, script: str = DONE) -> SessionHarness:
    harness = SessionHarness(folder, script)
    harness.environment["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] = "1"
    return harness


def request(request_id: str, subtype: str, **fields: Any) -> Json:
    return {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}


async def test_other_requests_are_answered_while_files_are_rewound(tmp_path: Path, gate: Gate) -> None:
    async with rewinding(tmp_path) as harness:
        harness.send(request("r", "rewind_files", user_message_id=ID(1)))
        await harness.request("interrupt")
        gate.open.set()
        answer = await harness.receive_until(lambda line: line.get("response", {}).get("request_id") == "r")
    assert payload(answer)["canRewind"] is True


async def test_no_turn_begins_before_a_rewind_that_was_asked_for_is_done(tmp_path: Path, gate: Gate) -> None:
    async with rewinding(tmp_path) as harness:
        harness.send(request("r", "rewind_files", user_message_id=ID(1)))
        harness.prompt("go", uuid=ID(2))
        harness.prompt("quiet", uuid=ID(3), shouldQuery=False)
        await harness.request("list_models")
        gate.open.set()
        await harness.receive("result")
    kinds = [line["type"] if line["type"] != "system" else line["subtype"] for line in harness.lines]
    answered = next(at for at, line in enumerate(harness.lines) if line.get("response", {}).get("request_id") == "r")
    assert answered < kinds.index("init") < kinds.index("result")


async def test_rewinds_are_done_one_by_one_and_in_their_order(tmp_path: Path, gate: Gate) -> None:
    async with rewinding(tmp_path) as harness:
        for number in range(1, 4):
            harness.send(request(f"r{number}", "rewind_files", user_message_id=ID(number)))
        await harness.request("list_models")
        begun_at_once = list(gate.started)
        gate.open.set()
    answered = [line["response"]["request_id"] for line in harness.messages("control_response")]
    assert len(begun_at_once) <= 1
    assert gate.started == [ID(1), ID(2), ID(3)]
    assert answered[1:] == ["r1", "r2", "r3"]


async def test_an_answer_that_is_owed_at_the_end_of_the_input_still_comes(tmp_path: Path, gate: Gate) -> None:
    async with rewinding(tmp_path) as harness:
        harness.send(request("r", "rewind_files", user_message_id=ID(1)))
        leaving = asyncio.create_task(harness.close())
        await asyncio.sleep(0)
        gate.open.set()
        await leaving
    assert [payload(line)["canRewind"] for line in harness.messages("control_response")] == [True]


async def test_an_interrupt_reaches_a_turn_that_waits_for_a_rewind(tmp_path: Path, gate: Gate) -> None:
    async with rewinding(tmp_path) as harness:
        harness.send(request("r", "rewind_files", user_message_id=ID(1)))
        harness.prompt("go", uuid=ID(2))
        await harness.receive_until(lambda line: line.get("state") == "started")
        await harness.request("interrupt")
        gate.open.set()
        result = await harness.receive("result")
    assert result["terminal_reason"] == "aborted_streaming"


async def for_ever(session: Any, request: Any) -> None:
    await asyncio.Event().wait()


def broken(session: Any, request: Any) -> None:
    raise ZeroDivisionError("a bug")


async def broken_later(session: Any, request: Any) -> None:
    raise ZeroDivisionError("a bug")


async def test_a_request_that_hangs_is_let_go_by_a_signal_and_still_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "list_models", for_ever)

    async with SessionHarness(tmp_path, DONE) as harness:
        harness.send(request("hangs", "list_models"))
        await harness.request("get_binary_version")
        harness.session.stop()
        answer = await harness.receive_until(lambda line: line.get("response", {}).get("request_id") == "hangs")
    assert answer["response"]["error_code"] == "cancelled"


async def test_a_request_that_is_withdrawn_is_let_go_and_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "list_models", for_ever)

    async with SessionHarness(tmp_path, DONE) as harness:
        harness.send(request("hangs", "list_models"), {"type": "control_cancel_request", "request_id": "hangs"})
    assert list(harness.messages("control_response")) == []


@pytest.mark.parametrize("handler", [broken, broken_later])
async def test_a_bug_in_an_answer_costs_that_answer_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., Any]
) -> None:
    monkeypatch.setattr(answers, "list_models", handler)

    async with SessionHarness(tmp_path, DONE) as harness:
        answer = await harness.request("list_models")
        harness.prompt("go")
        result = await harness.receive("result")
    assert answer["response"]["error_code"] == "internal_error"
    assert "ZeroDivisionError" in "".join(harness.warnings)
    assert result["result"] == "one"


# What a host may want to know while a turn runs.


async def test_questions_are_answered_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be kind.\n" * 100)
    async with SessionHarness(tmp_path, SLOW, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive("stream_event")
        usage = payload(await harness.request("get_context_usage"))
        cost = payload(await harness.request("get_session_cost"))
        used = payload(await harness.request("get_usage"))
        for subtype in ("list_models", "get_settings", "list_permission_rules", "get_binary_version"):
            payload(await harness.request(subtype))
        payload(await harness.request("set_color", color="blue"))
        payload(await harness.request("set_has_subscribers", has_subscribers=False))
        assert not list(harness.messages("result"))
        await harness.receive("result")
    rows = {row["id"]: row["tokens"] for row in usage["categories"]}
    assert {"system_prompt", "memory_files", "messages", "free_space"} <= rows.keys()
    assert usage["memoryFiles"] == [{"path": str(tmp_path / "CLAUDE.md"), "type": "Project", "tokens": 225}]
    assert cost["text"].startswith("Total cost: $")
    assert used["session"]["total_cost_usd"] == 0
    assert used["rate_limits_available"] is False


async def test_asking_for_the_context_before_the_first_turn_leaves_no_log(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        usage = payload(await harness.request("get_context_usage"))
    assert usage["totalTokens"] > 0
    assert list(tmp_path.glob("home/.claude/projects/*/*.jsonl")) == []


async def test_the_last_calls_usage_is_that_of_the_backend(tmp_path: Path) -> None:
    script = '[[turn]]\ntext = "Hi."\nusage = {input_tokens = 7, output_tokens = 3}\n'

    async with SessionHarness(tmp_path, script) as harness:
        harness.prompt("go")
        await harness.receive("result")
        usage = payload(await harness.request("get_context_usage"))
        cost = payload(await harness.request("get_session_cost"))
    assert (usage["apiUsage"]["input_tokens"], usage["apiUsage"]["output_tokens"]) == (7, 3)
    assert "7 input, 3 output" in cost["text"]


async def test_a_session_can_be_renamed_and_the_layout_has_its_title(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
        assert payload(await harness.request("rename_session", title="  My \n work ")) == {}
        other = await harness.request("rename_session", title="x", session_id="another")
        empty = await harness.request("rename_session", title=" \n")
        endless = await harness.request("rename_session", title="x" * 100_000)
    assert [line["response"]["subtype"] for line in (other, empty, endless)] == ["error", "error", "error"]
    [file] = tmp_path.glob("home/.claude/projects/*/*.jsonl")  # a small folder
    [line] = [line for line in file.read_text().splitlines() if "custom-title" in line]
    assert f'"customTitle":"My work","sessionId":"{result["session_id"]}"' in line
    async with SessionHarness(tmp_path, DONE, resume=result["session_id"]) as again:
        again.prompt("go on")
        assert (await again.receive("result"))["result"] == "one"


# Files for the host.


@pytest.mark.parametrize(
    ("content", "fields", "answer"),
    [
        (b"text\n", {}, {"contents": "text\n", "lossy": False}),
        (b"\xff\n", {}, {"contents": "\ufffd\n", "lossy": True}),
        (b"text", {"encoding": "base64"}, {"contents": base64.b64encode(b"text").decode(), "encoding": "base64"}),
        (b"text", {"max_bytes": 2}, {"contents": "te", "truncated": True, "lossy": False}),
    ],
)
async def test_a_host_can_read_a_file(tmp_path: Path, content: bytes, fields: Json, answer: Json) -> None:
    (tmp_path / "file").write_bytes(content)
    async with SessionHarness(tmp_path, DONE) as harness:
        told = payload(await harness.request("read_file", path="file", **fields))
    assert told == {**answer, "absPath": str(tmp_path / "file")}


@pytest.mark.parametrize("path", ["secret", "../outside", "missing", "."])
async def test_a_host_reads_no_more_than_the_model_may(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "secret").write_text("s")
    (tmp_path / "outside").write_text("o")
    async with SessionHarness(folder, DONE, disallowed_tools=("Read(secret)",)) as harness:
        answer = await harness.request("read_file", path=path)
    assert answer["response"]["subtype"] == "error"


class MustReadFirst(SessionHarness):
    """Its model must read a file before it changes it, as older ones must."""

    def furnish(self, setup: SessionConfig) -> SessionConfig:
        get_info = setup.model.get_info
        model = replace(setup.model, get_info=lambda choice: replace(get_info(choice), must_read_first=True))
        return replace(setup, model=model)


@pytest.mark.parametrize(("age_ms", "after"), [(0, "new\n"), (-1_000, "old\n")])
async def test_a_file_that_the_host_has_shown_counts_as_read_unless_it_changed_since(
    tmp_path: Path, age_ms: int, after: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old\n")
    mtime_ms = path.stat().st_mtime_ns // 1_000_000
    change = f'input = {{file_path = "{path}", old_string = "old", new_string = "new"}}'

    script = f'[[turn]]\ntools = [{{name = "Edit", {change}}}]\n' + DONE
    async with MustReadFirst(tmp_path, script, permission_mode="acceptEdits") as harness:
        answer = await harness.request("seed_read_state", path="a.txt", mtime=mtime_ms + age_ms)
        harness.prompt("go")
        await harness.receive("result")
    assert answer["response"]["subtype"] == "success"
    assert path.read_text() == after


async def test_files_are_suggested_by_a_part_of_their_path(tmp_path: Path) -> None:
    for name in ("alpha.py", "sub/beta.py", "alphabet/gamma.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    async with SessionHarness(tmp_path, DONE, disallowed_tools=("Read(sub/**)",)) as harness:
        found = payload(await harness.request("file_suggestions", query="Alpha"))
        none = payload(await harness.request("file_suggestions", query="beta"))
    assert found == {"suggestions": [{"path": "alpha.py"}, {"path": "alphabet/gamma.txt"}]}
    assert none == {"suggestions": []}
