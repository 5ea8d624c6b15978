"""A session as a host sees it: the handshake, turns, the queue, control requests, bad input."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.session import Json, SessionHarness, texts

ONE = '[[turn]]\ntext = "One."\n'
TWO = ONE + '[[turn]]\ntext = "Two."\n'
SLOW = """
[[turn]]
text = "word word word word word word"
chunk_chars = 5
event_delay_ms = 20
[[turn]]
text = "After."
"""


def kinds(lines: list[Json]) -> list[str]:
    return [f"{line['type']}/{line['subtype']}" if "subtype" in line else line["type"] for line in lines]


async def test_a_turn_is_init_then_assistant_then_one_result(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
    assert kinds(harness.lines) == ["system/init", "assistant", "result/success"]
    assert len({line["session_id"] for line in harness.lines}) == 1
    assert len({line["uuid"] for line in harness.lines}) == 3


async def test_the_result_has_every_field_that_clients_require(tmp_path: Path) -> None:
    async with SessionHarness(
        tmp_path, '[[turn]]\ntext = "One."\nusage = {input_tokens = 10, output_tokens = 5}\n'
    ) as harness:
        harness.prompt("Hi")
        result = await harness.receive("result")
    required = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 1,
        "result": "One.",
        "stop_reason": "end_turn",
        "terminal_reason": "completed",
        "total_cost_usd": 0.0,
        "permission_denials": [],
        "api_error_status": None,
        "result_index": 0,
        "queued_turn_count": 0,
    }
    assert {key: result[key] for key in required} == required
    assert result["usage"]["input_tokens"] == 10
    [usage] = result["modelUsage"].values()
    assert (usage["inputTokens"], usage["outputTokens"], usage["costUSD"]) == (10, 5, 0.0)
    assert {"duration_ms", "duration_api_ms", "uuid", "session_id"} <= set(result)


@pytest.mark.parametrize("pipelined", [True, False])
async def test_initialize_is_answered_before_the_turn_in_every_order_clients_use(
    tmp_path: Path, pipelined: bool
) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        hello = {"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", "hooks": None}}
        harness.send(hello)
        if not pipelined:
            await harness.receive("control_response")
        harness.prompt("Hi")
        await harness.receive("result")
    assert kinds(harness.lines) == ["control_response", "system/init", "assistant", "result/success"]


async def test_the_initialize_answer_has_models_account_and_whether_hooks_are_applied(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        first = await harness.request("initialize", hooks=None, protocolVersion="1.0", features=[], unknown=1)
        matcher = {"matcher": None, "hookCallbackIds": ["hook_0"]}
        second = await harness.request("initialize", hooks={"PreToolUse": [matcher]})
    answer = first["response"]["response"]
    assert answer["models"][0]["value"] == "default"
    assert answer["account"]["apiKeySource"] == "none"
    assert answer["claude_code_version"].startswith("2.1.")
    assert ("hooks_applied" in answer, second["response"]["response"]["hooks_applied"]) == (False, True)


async def test_a_conversation_continues_in_one_process_and_init_opens_every_turn(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TWO) as harness:
        harness.prompt("first")
        await harness.receive("result")
        harness.send({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "second"}]}})
        await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    assert kinds(harness.lines) == ["system/init", "assistant", "result/success"] * 2
    assert [line["result_index"] for line in harness.messages("result")] == [0, 1]
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "assistant"]


async def test_input_that_ended_still_gets_all_its_turns(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TWO) as harness:
        harness.prompt("first")
        harness.prompt("second")
    assert [line["result"] for line in harness.messages("result")] == ["One.", "Two."]


async def test_prompts_that_arrive_during_a_turn_make_up_the_next_one_together(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW, include_partial_messages=True) as harness:
        harness.prompt("first")
        await harness.receive("stream_event")
        harness.prompt("second")
        harness.prompt("third")
        await harness.receive("result")
        await harness.receive("result")
        last = harness.session.conversation.build_request().messages[2]
    assert last["content"][0]["text"] == "second\nthird"
    assert len(list(harness.messages("result"))) == 2


async def test_one_assistant_line_per_block_and_it_comes_before_the_event_that_ends_the_block(tmp_path: Path) -> None:
    script = '[[turn]]\nthinking = "Hm."\ntext = "Yes."\n'
    async with SessionHarness(tmp_path, script, include_partial_messages=True) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
    events = [line["event"]["type"] if line["type"] == "stream_event" else line["type"] for line in harness.lines]
    block = ["content_block_start", "content_block_delta", "assistant", "content_block_stop"]
    thought = [
        "content_block_start",
        "system",  # thinking_tokens
        "content_block_delta",
        "content_block_delta",
        "assistant",
        "content_block_stop",
    ]
    start, end = ["system", "system", "message_start"], ["message_delta", "message_stop", "result"]
    assert events == [*start, *thought, *block, *end]
    [thinking, text] = harness.messages("assistant")
    assert thinking["message"]["content"] == [{"type": "thinking", "thinking": "Hm.", "signature": "c2NyaXB0ZWQ="}]
    assert thinking["message"]["id"] == text["message"]["id"]
    assert text["message"]["stop_reason"] is None


async def test_without_partial_messages_no_stream_event_is_reported(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.prompt("Hi")
        await harness.receive("result")
    assert not list(harness.messages("stream_event"))


async def test_an_interrupt_is_answered_first_keeps_what_was_said_and_the_session_continues(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SLOW, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive_until(lambda line: line.get("event", {}).get("type") == "content_block_delta")
        answer = await harness.request("interrupt")
        result = await harness.receive("result")
        harness.prompt("again")
        after = await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    assert answer["response"]["response"] == {"still_queued": []}
    assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "aborted_streaming")
    assert result["errors"]
    assert after["result"] == "After."
    cut, _ = harness.messages("assistant")
    assert cut["aborted"] is True
    assert cut["message"]["content"][0]["text"].startswith("word")
    assert sent[2]["content"][0]["text"] == "[Request interrupted by user]"
    assert len(list(harness.messages("result"))) == 2


async def test_an_interrupt_with_nothing_running_is_fine(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        answer = await harness.request("interrupt")
        harness.prompt("Hi")
        result = await harness.receive("result")
    assert answer["response"]["subtype"] == "success"
    assert result["result"] == "One."


async def test_an_interrupt_right_after_the_prompt_still_gives_exactly_one_result(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TWO) as harness:
        interrupt = {"type": "control_request", "request_id": "x", "request": {"subtype": "interrupt"}}
        harness.send({"type": "user", "message": {"role": "user", "content": "go"}}, interrupt)
        await harness.receive("result")
        harness.prompt("again")
        await harness.receive("result")
    assert len(list(harness.messages("result"))) == 2


async def test_a_changed_model_is_announced_and_used(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        answer = await harness.request("set_model", model="offline")
        harness.prompt("say Offline now.")
        result = await harness.receive("result")
        back = await harness.request("set_model", model=None)
        wrong = await harness.request("set_model", model=5)
    assert answer["response"]["response"] == {"model": "offline"}
    assert result["result"] == "Offline now."
    # The line about the change follows the first turn: before it, nothing was replaced.
    assert [
        str(line["message"]["content"]).startswith("<local-command-stdout>Set model to")
        for line in harness.messages("user")
    ] == [True]
    assert next(harness.messages("system"))["model"] == "offline"
    assert back["response"]["response"]["model"].startswith("scripted:")
    assert wrong["response"]["subtype"] == "error"


async def test_a_model_that_is_changed_while_it_answers_is_the_one_that_the_answer_is_billed_to(tmp_path: Path) -> None:
    slow = "[[turn]]\ntext = 'word word word'\nchunk_chars = 1\nevent_delay_ms = 5"
    async with SessionHarness(tmp_path, slow, include_partial_messages=True) as harness:
        harness.prompt("go")
        await harness.receive_until(lambda line: line.get("event", {}).get("type") == "content_block_delta")
        await harness.request("set_model", model="offline")
        result = await harness.receive("result")
    assert [name.partition(":")[0] for name in result["modelUsage"]] == ["scripted"]


async def test_thinking_tokens_reach_the_next_request(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE, model="claude-sonnet-4-5", max_thinking_tokens=2000) as harness:
        before = harness.session.conversation.build_request().thinking
        await harness.request("set_max_thinking_tokens", max_thinking_tokens=4000)
        changed = harness.session.conversation.build_request().thinking
        await harness.request("set_max_thinking_tokens", max_thinking_tokens=None)
        again = harness.session.conversation.build_request().thinking
        wrong = await harness.request("set_max_thinking_tokens", max_thinking_tokens=-1)
        await harness.request("set_max_thinking_tokens", max_thinking_tokens=0)
        off = harness.session.conversation.build_request().thinking
    assert before == again == {"type": "enabled", "budget_tokens": 2000}
    assert changed == {"type": "enabled", "budget_tokens": 4000}
    assert (off, wrong["response"]["subtype"]) == (None, "error")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"system_prompt": "You are X"}, "You are X"),
        ({"system_prompt": ""}, ""),
        ({"system_prompt": "You are X", "append_system_prompt": "Also Y"}, "You are X\n\nAlso Y"),
    ],
)
async def test_a_system_prompt_replaces_ours_and_an_empty_one_means_none(
    tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    async with SessionHarness(tmp_path, ONE, **fields) as harness:
        system = harness.session.conversation.build_request().system
    assert [block["text"] for block in system] == ([expected] if expected else [])


async def test_prompts_given_in_initialize_count_like_the_flags(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        await harness.request("initialize", systemPrompt=["You are X"], appendSystemPrompt="Be brief.")
        system = harness.session.conversation.build_request().system
    assert [block["text"] for block in system] == ["You are X\n\nBe brief."]


async def test_the_next_request_begins_with_the_last_one(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TWO) as harness:
        harness.prompt("first")
        await harness.receive("result")
        first = harness.session.conversation.build_request()
        harness.prompt("second")
        await harness.receive("result")
        second = harness.session.conversation.build_request()
    assert first.system == second.system
    assert bare(second.messages)[: len(first.messages)] == bare(first.messages)


def bare(messages: list[Json]) -> list[Json]:
    """Messages without cache markers, which move on with every request."""

    def strip(block: Json) -> Json:
        return {key: value for key, value in block.items() if key != "cache_control"}

    return [{**message, "content": [strip(block) for block in message["content"]]} for message in messages]


async def test_images_and_documents_reach_the_model_unchanged(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}, "extra": 1}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "T"}

    async with SessionHarness(tmp_path, ONE) as harness:
        harness.send({"type": "user", "message": {"role": "user", "content": [image, document]}})
        await harness.receive("result")
        sent = harness.session.conversation.build_request().messages[0]["content"]
    assert sent[:2] == [image, document]


async def test_replayed_prompts_come_back_with_their_uuid_and_a_known_uuid_is_not_run_again(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TWO, replay_user_messages=True) as harness:
        harness.prompt("go", uuid="11111111-1111-4111-8111-111111111111")
        await harness.receive("result")
        harness.prompt("go again", uuid="11111111-1111-4111-8111-111111111111")
        harness.prompt([{"type": "text", "text": "new"}])
        await harness.receive("result")
    echoes = [(line["message"]["content"], line["isReplay"]) for line in harness.messages("user")]
    assert echoes == [("go", True), ("go again", True), ([{"type": "text", "text": "new"}], True)]
    states = [line["state"] for line in harness.messages("command_lifecycle")]
    assert states == ["queued", "started", "completed"]
    assert len(list(harness.messages("result"))) == 2


@pytest.mark.parametrize(
    "line", [{"type": "control", "action": "interrupt"}, {"jsonrpc": "2.0", "id": 1, "method": "cancel"}]
)
async def test_a_line_of_another_dialect_is_complained_of_and_changes_nothing(tmp_path: Path, line: Json) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.send(line)
        harness.prompt("Hello")
        assert (await harness.receive("result"))["subtype"] == "success"
    assert any("--stdio" in warning for warning in harness.warnings)


async def test_an_unknown_control_request_gets_an_error_that_says_so(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        answer = await harness.request("make_coffee")
    assert answer["response"]["error"] == "Unsupported control request subtype: make_coffee"
    assert answer["response"]["error_code"] == "unsupported_request"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user", broken',
        b"not json at all",
        b"null",
        b"42",
        b"[]",
        b'""',
        b"{}",
        b'{"type":null}',
        b'{"type":"mystery","x":1}',
        b'{"type":"assistant","message":{"role":"assistant","content":[]}}',
        b'{"type":"control_response"}',
        b'{"type":"control_request"}',
        b'{"type":"control_request","request_id":"r"}',
        b'{"type":"control_request","request":{"subtype":"interrupt"}}',
        b'{"type":"control_response","response":{"subtype":"success","request_id":"nope"}}',
        b'{"type":"control_cancel_request","request_id":"zz"}',
        b'{"type":"keep_alive"}',
        b"",
        b"   ",
        b'{"type":"system","subtype":"x"}',
        b'{"type":"control","action":"status"}',
        b'{"jsonrpc":"2.0","id":1,"method":"run","params":{}}',
        b"\xff\xfe",
        b"[" * 5000,
    ],
)
async def test_a_malformed_line_never_ends_the_session(tmp_path: Path, line: bytes) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.send(line)
        harness.prompt("still there?")
        result = await harness.receive("result")
    assert (result["result"], result["is_error"]) == ("One.", False)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user"}',
        b'{"type":"user","message":{}}',
        b'{"type":"user","message":"str"}',
        b'{"type":"user","message":{"role":"user","content":5}}',
        b'{"type":"user","message":{"role":"assistant","content":"x"}}',
        b'{"type":"user","message":{"role":"user","content":[{"type":"text"}]}}',
        b'{"type":"user","message":{"role":"user","content":["x"]}}',
    ],
)
async def test_a_prompt_that_cannot_be_read_gets_a_result_that_says_why(tmp_path: Path, line: bytes) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.send(line)
        refused = await harness.receive("result")
        harness.prompt("a good one")
        result = await harness.receive("result")
    assert (refused["subtype"], refused["is_error"]) == ("error_during_execution", True)
    assert refused["errors"][0].startswith("The prompt was refused: user: ")
    assert refused["fault_type"] == "validation_error"
    assert result["result"] == "One."


async def test_the_result_of_a_prompt_that_is_refused_names_it(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.send({"type": "user", "message": {"role": "user", "content": 5}, "uuid": "mine"})
        assert (await harness.receive("result"))["user_message_uuids"] == ["mine"]
        harness.send({"type": "user", "message": {"role": "user", "content": 5}})
        assert "user_message_uuids" not in await harness.receive("result")


async def test_a_prompt_that_is_refused_costs_nothing(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.prompt("a good one")
        await harness.receive("result")
        harness.send(b'{"type":"user","message":{"role":"user","content":5}}')
        refused = await harness.receive("result")
    assert (refused["usage"]["input_tokens"], refused["usage"]["output_tokens"]) == (0, 0)


async def test_a_request_that_cannot_be_read_is_answered_under_its_id(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        answer = await harness.request("set_permission_mode")
        numeric = {"type": "control_request", "request_id": 5, "request": {"subtype": "interrupt"}}
        harness.send(numeric)
        echoed = await harness.receive("control_response")
    assert answer["response"]["subtype"] == "error"
    assert "mode" in answer["response"]["error"]
    assert echoed["response"]["request_id"] == 5


@pytest.mark.parametrize(
    ("fault", "status", "name", "retries"),
    [
        ('{status = 400, type = "invalid_request_error", message = "bad thing"}', 400, "unknown", 0),
        ('{status = 403, type = "permission_error", message = "no"}', 403, "authentication_failed", 0),
        (
            '{status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 0}',
            529,
            "server_error",
            2,
        ),
        ('{status = 429, type = "rate_limit_error", message = "slow", retry_after_seconds = 0}', 429, "rate_limit", 2),
    ],
)
async def test_a_failing_model_gives_an_error_line_and_a_result_with_is_error(
    tmp_path: Path, fault: str, status: int, name: str, retries: int
) -> None:
    script = f'at_end = "repeat"\n[[turn]]\nerror = {fault}\n'
    async with SessionHarness(tmp_path, script) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
    assert (result["subtype"], result["is_error"], result["terminal_reason"]) == ("success", True, "api_error")
    assert result["api_error_status"] == status
    [line] = harness.messages("assistant")
    assert (line["error"], line["message"]["model"], line["is_api_error_message"]) == (name, "<synthetic>", True)
    assert line["message"]["content"][0]["text"] == result["result"]
    tried = [line for line in harness.lines if line.get("subtype") == "api_retry"]
    assert [line["attempt"] for line in tried] == list(range(1, retries + 1))


async def test_a_retry_that_works_leaves_a_good_result(tmp_path: Path) -> None:
    script = "[[turn]]\nerror = {status = 500, retry_after_seconds = 0}\n" + ONE
    async with SessionHarness(tmp_path, script) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
    assert (result["result"], result["is_error"], result["num_turns"]) == ("One.", False, 1)


async def test_a_failed_turn_does_not_spoil_the_next(tmp_path: Path) -> None:
    script = '[[turn]]\nerror = {status = 400, message = "no"}\n' + ONE
    async with SessionHarness(tmp_path, script) as harness:
        harness.prompt("first")
        await harness.receive("result")
        harness.prompt("second")
        result = await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    assert result["result"] == "One."
    assert [block["text"] for block in sent[0]["content"]] == ["first", "second"]


async def test_state_is_sent_to_hosts_that_asked_and_idle_follows_the_last_result(tmp_path: Path) -> None:
    harness = SessionHarness(tmp_path, TWO)
    harness.environment["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] = "1"
    async with harness:
        harness.prompt("first")
        harness.prompt("second")
        await harness.receive_until(lambda line: line.get("state") == "idle")
    told = [line.get("state", line["type"]) for line in harness.lines if line["type"] == "result" or "state" in line]
    assert told == ["running", "result", "running", "result", "idle"]


async def test_the_same_script_gives_the_same_bytes(tmp_path: Path) -> None:
    async def scenario(folder: Path) -> bytes:
        fixed = "22222222-2222-4222-8222-222222222222"
        async with SessionHarness(folder, TWO, include_partial_messages=True, session_id=fixed) as harness:
            harness.prompt("first")
            await harness.receive("result")
            harness.prompt("second")
            await harness.receive("result")
        return harness.raw.replace(str(folder).encode(), b"FOLDER")

    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    one, two = [await scenario(folder) for folder in folders]
    assert one == two


async def test_a_session_can_be_resumed_in_another_process_with_its_conversation(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE) as harness:
        harness.prompt("first")
        result = await harness.receive("result")
    async with SessionHarness(tmp_path, ONE, resume=result["session_id"]) as again:
        again.prompt("second")
        other = await again.receive("result")
        sent = again.session.conversation.build_request().messages
    assert other["session_id"] == result["session_id"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "assistant"]
    assert texts(again.messages("assistant")) == ["One."]


async def test_what_was_sent_is_in_the_log_in_the_same_order(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, TWO) as harness:
        harness.prompt("first")
        await harness.receive("result")
        entries = list(harness.session.config.storage.log.entries())
    assert [entry.kind for entry in entries] == ["user", "prompt", "assistant", "usage", "result"]
    assert [entry.seq for entry in entries] == [0, 1, 2, 3, 4]
    told = {line["uuid"] for line in harness.lines if line["type"] in ("assistant", "result")}
    assert told == {entry.message["uuid"] for entry in entries if entry.kind in ("assistant", "result")}


async def test_a_full_disk_ends_the_turn_with_a_result_that_names_it(tmp_path: Path) -> None:
    session_id = "33333333-3333-4333-8333-333333333333"

    async with SessionHarness(tmp_path, ONE) as probe:
        project = Path(probe.session.config.workspace.results_folder).parent.parent
    project.mkdir(parents=True, exist_ok=True)
    async with SessionHarness(tmp_path, ONE, session_id=session_id) as harness:
        (project / f"{session_id}.jsonl").symlink_to("/dev/full")
        harness.prompt("go")
        result = await harness.receive("result")
    assert result["is_error"] is True
    assert "cannot write the session" in result["errors"][0]
    assert (result["fault_type"], result["terminal_reason"]) == ("system_error", "turn_setup_failed")


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EIO"])
async def test_writes_that_a_full_disk_loses_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    write, session_id = os.write, "33333333-3333-4333-8333-333333333333"

    def fail(file: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{file}").endswith(f"{session_id}.jsonl"):
            raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))
        return write(file, data)

    async with SessionHarness(tmp_path, ONE, session_id=session_id) as harness:
        monkeypatch.setattr(os, "write", fail)
        for _ in range(2):
            harness.prompt("go")
            result = await harness.receive("result")
        monkeypatch.undo()
    assert "cannot write the session" in result["errors"][0]
    lost = [line for line in harness.lines if line.get("subtype") == "session_writes_lost"]
    expected = {
        "type": "system",
        "subtype": "session_writes_lost",
        "error_code": code,
        "lost": ["transcript"],
        "transcript_session_ids": [session_id],
        "session_id": session_id,
    }
    assert [{key: line[key] for key in line if key != "uuid"} for line in lost] == [expected] * (code != "EIO")
    assert all(line["uuid"] for line in lost)


async def test_a_prompt_larger_than_the_model_can_hold_is_refused_and_the_next_one_works(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE, model="claude-sonnet-4-5") as harness:
        harness.prompt("A" * 900_000)
        refused = await harness.receive("result")
        await harness.request("set_model", model=f"scripted:{tmp_path / 'script.toml'}")
        harness.prompt("small")
        result = await harness.receive("result")
    assert (refused["is_error"], refused["terminal_reason"]) == (True, "blocking_limit")
    assert result["result"] == "One."


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": ""}]])
async def test_an_empty_prompt_is_refused_and_no_model_is_asked(tmp_path: Path, content: object) -> None:
    async with SessionHarness(tmp_path, "[[turn]]\ntext = 'one'\n[[turn]]\ntext = 'two'\n") as harness:
        harness.prompt("first")
        await harness.receive("result")
        harness.send({"type": "user", "message": {"role": "user", "content": content}})
        refused = await harness.receive("result")
        harness.prompt("second")
        result = await harness.receive("result")
    assert (refused["subtype"], refused["errors"]) == (
        "error_during_execution",
        ["The prompt was refused: it is empty"],
    )
    assert result["result"] == "two"


async def test_pasted_text_reaches_the_model_marked_and_is_echoed(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE, replay_user_messages=True) as harness:
        harness.prompt(
            "Explain x = 1",
            pasted_content=["A log.", [{"type": "text", "text": "A table."}]],
            inline_pastes=["x = 1"],
            origin={"kind": "human"},
            uuid="11111111-1111-4111-8111-111111111111",
        )
        await harness.receive("result")
        [sent] = harness.session.journal.history.render()[:1]
    [echo] = [line for line in harness.messages("user") if line.get("isReplay")]
    assert [block["text"] for block in sent["content"]] == [
        "Explain <pasted_content>\nx = 1\n</pasted_content>",
        "<pasted_content>\nA log.\n</pasted_content>",
        "<pasted_content>\nA table.\n</pasted_content>",
    ]
    assert echo["message"]["content"] == sent["content"]
    assert echo["origin"] == {"kind": "human"}


async def test_the_betas_of_a_session_are_named(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, ONE, betas=("context-1m-2025-08-07",)) as harness:
        harness.prompt("Hi")
        init = await harness.receive("system", "init")
        await harness.receive("result")
    assert init["betas"] == ["context-1m-2025-08-07"]
