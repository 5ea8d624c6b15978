"""The dialect spec001 through the real executable: output formats, its folder, its sources of a key."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.helpers.patience import PATIENCE_SECONDS

PARLEY = str(Path(sys.executable).with_name("parley"))
B = ("--dialect", "spec001", "--print", "--verbose")
STREAM = (*B, "--output-format", "stream-json")
MESSAGES = (*B, "--output-format", "message")
TOOLS = {
    "Read": {"file_path", "offset", "limit"},
    "Write": {"file_path", "content"},
    "Edit": {"file_path", "old_string", "new_string"},
    "Glob": {"pattern", "path"},
    "Grep": {"pattern", "path", "output_mode"},
    "Bash": {"command", "timeout"},
    "WebFetch": {"url", "prompt"},
    "WebSearch": {"query"},
    "Task": {"prompt", "subagent_type"},
    "TodoWrite": set[str](),
}
"""The tools of the dialect's document and their parameters. Those of TodoWrite are read; others are shown."""
Json = dict[str, Any]


def lines(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines()]


def kinds(said: list[Json]) -> list[str]:
    return ["/".join(filter(None, (line["type"], line.get("subtype")))) for line in said]


def script(folder: Path, *turns: str) -> str:
    (folder / "script.toml").write_text("\n".join(f"[[turn]]\n{turn}" for turn in turns))
    return f"scripted:{folder / 'script.toml'}"


def reading(folder: Path) -> str:
    (folder / "file.txt").write_text("File contents here...")
    call = f"{{ name = 'Read', id = 'toolu_01', input = {{ file_path = '{folder}/file.txt' }} }}"
    return script(folder, f'text = "I\'ll read the file for you."\ntools = [{call}]', "text = 'It has contents.'")


def test_messages_are_whole_and_the_stream_has_its_events_before_them(tmp_path: Path, run: Any) -> None:
    model = reading(tmp_path)
    plain = run(*MESSAGES, "--model", model, "--", "Read it")
    streamed = run(*STREAM, "--model", model, "--", "Read it")

    said = lines(plain.stdout)
    assert kinds(said) == ["system/init", "assistant", "user", "assistant", "result/success"]
    assert [block["type"] for block in said[1]["message"]["content"]] == ["text", "tool_use"]
    assert said[2]["message"]["content"][0]["tool_use_id"] == "toolu_01"
    events = [line["event"]["type"] for line in lines(streamed.stdout) if line["type"] == "stream_event"]
    assert events[0] == "message_start"
    assert "content_block_delta" in events
    without = [line for line in lines(streamed.stdout) if line["type"] != "stream_event"]
    assert kinds(without) == kinds(said)
    order = kinds(lines(streamed.stdout))
    assert order.index("assistant") > order.index("stream_event") + events.index("message_stop")
    assert (plain.returncode, plain.stderr) == (0, "")


def test_without_an_output_format_the_answer_is_text_and_json_is_its_result(tmp_path: Path, run: Any) -> None:
    model = script(tmp_path, "text = 'Four.'")
    assert run("--dialect", "spec001", "-p", "--model", model, "2+2?").stdout == "Four.\n"
    done = run("--dialect", "spec001", "-p", "--output-format", "json", "--model", model, "2+2?")

    [result] = lines(done.stdout)
    assert (result["subtype"], result["input_tokens"] > 0) == ("success", True)
    assert result["timestamp"].endswith("Z")


def test_every_line_has_the_time_in_milliseconds_and_the_session(tmp_path: Path, run: Any) -> None:
    said = lines(run(*STREAM, "--model", reading(tmp_path), "--", "Read it").stdout)

    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"]) for line in said)
    assert len({line["session_id"] for line in said}) == 1


def test_the_first_line_has_the_ten_tools_with_schemas_that_have_the_parameters_of_the_document(
    tmp_path: Path, run: Any
) -> None:
    [init, *_] = lines(run(*MESSAGES, "--model", script(tmp_path, "text = 'Hi.'"), "--", "hi").stdout)

    assert set(init) == {"type", "subtype", "session_id", "model", "tools", "timestamp"}
    listed = {tool["name"]: tool["input_schema"]["properties"] for tool in init["tools"]}
    assert {name: names & set(listed[name]) for name, names in TOOLS.items()} == TOOLS
    for tool in init["tools"]:
        assert set(tool) == {"name", "description", "input_schema"}
        assert tool["input_schema"]["type"] == "object"


def test_the_session_is_a_folder_with_three_files(tmp_path: Path, run: Any) -> None:
    session_id = "550e8400-e29b-41d4-a716-446655440000"
    run(*MESSAGES, "--session-id", session_id, "--model", reading(tmp_path), "--", "Read it")
    folder = tmp_path / "home" / ".claude" / "sessions" / session_id

    assert {path.name for path in folder.iterdir()} == {"session.json", "messages.jsonl", "state.json"}
    facts = json.loads((folder / "session.json").read_text())
    assert facts["protocol_version"] == "2024-11-05"
    assert {"id", "cwd"} <= set(facts)
    state = json.loads((folder / "state.json").read_text())
    assert facts["model"] == state["model"]
    assert {"mode", "model", "usage", "cost_usd"} <= set(state)
    said = [line["type"] for line in lines((folder / "messages.jsonl").read_text())]
    assert {"user", "assistant"} <= set(said)


def test_a_resumed_session_continues_after_its_last_message(tmp_path: Path, run: Any) -> None:
    [init, *_] = lines(run(*MESSAGES, "--model", reading(tmp_path), "--", "Read it").stdout)
    done = run(*MESSAGES, "--resume", init["session_id"], "--model", script(tmp_path, "text = 'On.'"), "--", "Continue")

    [again, *_, result] = lines(done.stdout)
    assert again["session_id"] == init["session_id"]
    assert (result["subtype"], result["result"]) == ("success", "On.")
    kept = tmp_path / "home" / ".claude" / "sessions" / init["session_id"] / "messages.jsonl"
    texts = kept.read_text()
    assert texts.index("Read it") < texts.index("It has contents.") < texts.index("Continue") < texts.index("On.")


def test_a_folder_whose_messages_are_lines_of_the_document_is_resumed(tmp_path: Path, run: Any) -> None:
    session_id = "550e8400-e29b-41d4-a716-446655440000"
    folder = tmp_path / "home" / ".claude" / "sessions" / session_id
    folder.mkdir(parents=True)
    at = {"session_id": session_id, "timestamp": "2026-02-02T10:30:02Z"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/a"}}
    kept = [
        {"type": "user", "message": {"role": "user", "content": "Remember the number 7."}, **at},
        {"type": "assistant", "message": {"role": "assistant", "content": [call]}, **at},
        {"type": "user", "message": {"role": "user", "content": [result_of("toolu_1")]}, **at},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "I do."}]}, **at},
        {"type": "result", "subtype": "success", "num_turns": 2, **at},
    ]
    (folder / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    recording = tmp_path / "tape.jsonl"
    done = run(*MESSAGES, "--resume", session_id, "--model", "offline", "--record", str(recording), "--", "Which one?")

    assert done.returncode == 0, done.stderr
    sent = recording.read_text()
    assert "Remember the number 7." in sent
    assert "File contents" in sent
    again = run(*MESSAGES, "--resume", session_id, "--model", "offline", "--", "And now?")
    assert again.returncode == 0, again.stderr


def result_of(call: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": "File contents"}


def test_an_unknown_session_is_an_error_of_validation(run: Any) -> None:
    done = run(*MESSAGES, "--resume", "550e8400-e29b-41d4-a716-446655440000", "--model", "offline", "--", "Continue")

    [result] = lines(done.stdout)
    assert (result["subtype"], result["error"]["type"]) == ("error", "validation_error")
    assert "No conversation found" in result["error"]["message"]
    assert done.returncode == 1


def test_limits_have_their_subtypes(tmp_path: Path, run: Any) -> None:
    done = run(*MESSAGES, "--max-turns", "1", "--model", reading(tmp_path), "--", "Read it")

    assert lines(done.stdout)[-1]["subtype"] == "max_turns_reached"
    (tmp_path / "prices.json").write_text('{"scripted": {"input": 1000000, "output": 1000000}}')
    prices = {"PARLEY_PRICES": str(tmp_path / "prices.json")}
    done = run(*MESSAGES, "--max-budget-usd", "0.01", "--model", reading(tmp_path), "--", "Read it", **prices)
    assert lines(done.stdout)[-1]["subtype"] == "budget_exceeded"


def test_without_a_client_the_call_is_denied_and_the_turn_continues(tmp_path: Path, run: Any) -> None:
    call = "{ name = 'Write', id = 'toolu_1', input = { file_path = 'new.txt', content = '...' } }"
    model = script(tmp_path, f"tools = [{call}]", "text = 'Not done.'")
    said = lines(run(*MESSAGES, "--model", model, "--", "Write it").stdout)

    assert kinds(said)[1:] == ["assistant", "system/permission_request", "user", "assistant", "result/success"]
    assert (said[2]["tool"], said[2]["params"]) == ("Write", {"file_path": "new.txt", "content": "..."})
    assert said[3]["message"]["content"][0]["is_error"] is True
    assert not (tmp_path / "new.txt").exists()
    failed = lines(run(*MESSAGES, "--fail-on-denial", "--model", model, "--", "Write it").stdout)[-1]
    assert (failed["subtype"], failed["error"]["type"]) == ("error", "permission_denied")


def test_skipped_permissions_let_the_call_run(tmp_path: Path, run: Any) -> None:
    call = "{ name = 'Write', id = 'toolu_1', input = { file_path = 'new.txt', content = 'x' } }"
    model = script(tmp_path, f"tools = [{call}]", "text = 'Done.'")
    said = lines(run(*MESSAGES, "--dangerously-skip-permissions", "--model", model, "--", "go", IS_SANDBOX="1").stdout)

    assert "system/permission_request" not in kinds(said)
    assert (tmp_path / "new.txt").read_text() == "x"


def test_a_hook_that_ran_is_reported(tmp_path: Path, run: Any) -> None:
    hooks = {"PreToolUse": [{"matcher": "Read", "hooks": [{"type": "command", "command": "true"}]}]}
    done = run(*MESSAGES, "--settings", json.dumps({"hooks": hooks}), "--model", reading(tmp_path), "--", "Read it")

    [told] = [line for line in lines(done.stdout) if line.get("subtype") == "hook_execution"]
    assert {"hook_event": "PreToolUse", "tool": "Read", "outcome": "success"}.items() <= told.items()


def test_a_failing_backend_is_an_api_error(tmp_path: Path, run: Any) -> None:
    model = script(tmp_path, *["error = { status = 529, retry_after_seconds = 0 }"] * 2)
    done = run(*MESSAGES, "--model", model, "--", "hi", CLAUDE_CODE_MAX_RETRIES="1")
    said = lines(done.stdout)

    assert said[-1]["error"]["type"] == "api_error"
    assert said[-1]["error"]["details"]["status"] == 529
    assert [line["error"]["type"] for line in said if line.get("subtype") == "error" and line["type"] == "system"] == [
        "api_error",
        "api_error",
    ]
    assert done.returncode == 1


def test_ctrl_c_ends_the_turn_as_cancelled_by_the_user(tmp_path: Path, environment: dict[str, str]) -> None:
    call = "{ name = 'Bash', id = 'toolu_1', input = { command = 'sleep 19' } }"
    argv = [PARLEY, *MESSAGES, "--allowedTools", "Bash", "--model", script(tmp_path, f"tools = [{call}]"), "--", "go"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(json.loads(line))
            if said[-1]["type"] == "assistant":
                process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0

    assert said[-1]["subtype"] == "user_cancelled"
    assert kinds(said).count("result/user_cancelled") == 1


def waits_for_more(reading: int, writing: int) -> None:
    """Wait until a pipe is empty: its reader then waits for more data."""
    os.write(writing, b"a part of the prompt")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4)) != (0,):
        assert time.monotonic() < deadline, "nobody reads stdin"
        time.sleep(0.01)


@pytest.mark.parametrize("format", ["stream-json", "message", "json"])
def test_ctrl_c_before_there_is_a_prompt_is_reported_as_well(
    tmp_path: Path, environment: dict[str, str], format: str
) -> None:
    reading, writing = os.pipe()
    argv = [PARLEY, *B, "--output-format", format, "--session-id", "11111111-1111-4111-8111-111111111111"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=PIPE, stdin=reading) as process:
        waits_for_more(reading, writing)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    os.close(reading)
    os.close(writing)

    [line] = lines(said.decode())
    assert (line["type"], line["subtype"], process.returncode) == ("result", "user_cancelled", 0)
    assert line["session_id"] == "11111111-1111-4111-8111-111111111111"


SECRET = "sk-ant-api03-not-a-key-of-anybody"


def looking(folder: Path) -> str:
    look = "tr '\\\\0' ' ' < /proc/$$/environ; tr '\\\\0' ' ' < /proc/$$/cmdline; tr '\\\\0' ' ' < /proc/$PPID/cmdline"
    return script(folder, f"tools = [{{ name = 'Bash', id = 't1', input = {{ command = \"{look}\" }} }}]", "text = '.'")


def test_a_key_on_the_command_line_is_warned_about_and_reaches_no_child(tmp_path: Path, run: Any) -> None:
    argv = (*MESSAGES, "--allowedTools", "Bash", "--model", looking(tmp_path), "--api-key", SECRET, "--", "look")
    done = run(*argv)

    [seen] = [line for line in lines(done.stdout) if line["type"] == "user"]
    assert "HOME=" in seen["message"]["content"][0]["content"]
    assert SECRET not in done.stdout
    assert "--api-key exposes the key in the process list" in done.stderr
    assert SECRET not in done.stderr


def test_the_key_is_found_in_the_config_file_and_before_it_in_the_environment(tmp_path: Path, run: Any) -> None:
    config = tmp_path / "home" / ".config" / "claude"
    config.mkdir(parents=True)
    for name in ("apiKey", "api_key"):
        (config / "config.json").write_text(json.dumps({name: "sk-from-the-file"}))
        assert source(run) == "config.json"
    assert source(run, ANTHROPIC_API_KEY="sk-from-the-environment") == "ANTHROPIC_API_KEY"


def source(run: Any, **environment: str) -> str:
    """The source of the key, as the canonical dialect reports it."""
    argv = ("-p", "--verbose", "--output-format", "stream-json", "--model", "offline", "say hi")
    return str(lines(run(*argv, **environment).stdout)[0]["apiKeySource"])


ASKED = {"type": "user", "message": {"role": "user", "content": "go"}}
ORDER = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


def test_a_session_continues_in_every_other_dialect_and_comes_back(tmp_path: Path, run: Any) -> None:
    """Started in spec001, resumed in stream-json and in spec001 again: each turn sees the whole conversation."""
    [init, *_] = lines(run(*MESSAGES, "--model", reading(tmp_path), "--", "Read it").stdout)
    session_id = init["session_id"]
    canonical = run(
        "-p", "--verbose", "--output-format", "stream-json", "--resume", session_id, "--model", "offline", "say Two."
    )
    assert lines(canonical.stdout)[-1]["result"] == "Two."
    assert "uuid" in lines(canonical.stdout)[-1]
    recording = tmp_path / "tape.jsonl"
    back = run(*MESSAGES, "--resume", session_id, "--model", "offline", "--record", str(recording), "--", "say Three.")
    assert lines(back.stdout)[-1]["result"] == "Three."
    sent = recording.read_text()
    for said in ("Read it", "File contents here...", "It has contents.", "say Two.", "Two."):
        assert said in sent


def test_a_session_of_the_canonical_dialect_continues_in_b(tmp_path: Path, run: Any) -> None:
    first = run("-p", "--verbose", "--output-format", "stream-json", "--model", "offline", "say One.")
    session_id = lines(first.stdout)[0]["session_id"]
    recording = tmp_path / "tape.jsonl"
    done = run(*MESSAGES, "--resume", session_id, "--model", "offline", "--record", str(recording), "--", "say Two.")

    assert lines(done.stdout)[-1]["result"] == "Two."
    assert "say One." in recording.read_text()


def test_lines_on_stdin_work_as_in_the_canonical_dialect(tmp_path: Path, run: Any) -> None:
    prompt = json.dumps({"type": "user", "content": [{"type": "text", "text": "say Hi."}]})
    done = run("--dialect", "spec001", *ORDER, "--model", "offline", stdin=f"{prompt}\nnonsense\n")

    said = lines(done.stdout)
    assert [line["result"] for line in said if line["type"] == "result"] == ["Hi."]
    [fault] = [line for line in said if line.get("subtype") == "error"]
    assert fault["error"]["type"] == "validation_error"
