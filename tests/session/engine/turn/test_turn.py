"""A turn with tools, as a host sees it: what is told, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from parley.stores.base import Entry
from tests.helpers.session import Json, SessionHarness

BYPASS = {"permission_mode": "bypassPermissions"}
DONE = '[[turn]]\ntext = "Done."\n'


def calls(*tools: tuple[str, Json]) -> str:
    """A model's turn that calls these tools, with ids t1, t2 …"""
    rows = [
        f'{{ name = "{name}", id = "t{at}", input = {toml(input)} }}' for at, (name, input) in enumerate(tools, start=1)
    ]
    return f"[[turn]]\ntools = [{', '.join(rows)}]\n"


def toml(value: Json) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items()) + "}"


def results(harness: SessionHarness) -> dict[str, Json]:
    blocks = [block for line in harness.messages("user") for block in line["message"]["content"]]
    return {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}


async def test_calls_that_only_read_run_together_and_are_reported_as_they_finish(tmp_path: Path) -> None:
    pipe = tmp_path / "notes.txt"
    pipe.write_text("alpha\n")

    script = calls(("Read", {"file_path": str(pipe)}), ("Glob", {"pattern": "*.txt"})) + DONE
    async with SessionHarness(tmp_path, script, **BYPASS) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
    assert set(results(harness)) == {"t1", "t2"}
    assert result["num_turns"] == 2
    shown = [line["type"] for line in harness.lines]
    assert shown == ["system", "assistant", "assistant", "user", "user", "assistant", "result"]


async def test_calls_that_change_something_run_one_after_the_other(tmp_path: Path) -> None:
    first, second = {"command": "sleep 0.2; echo one >> log"}, {"command": "echo two >> log"}
    async with SessionHarness(tmp_path, calls(("Bash", first), ("Bash", second)) + DONE, **BYPASS) as harness:
        harness.prompt("go")
        await harness.receive("result")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"
    assert list(results(harness)) == ["t1", "t2"]


async def test_an_unknown_tool_bad_input_and_unreadable_json_go_to_the_model_and_the_turn_continues(
    tmp_path: Path,
) -> None:
    script = (
        calls(("Fly", {}), ("Bash", {"command": []}), ("Read", {"offset": 1}))
        + '[[turn]]\ntools = [{ name = "Read", id = "t4", input = "{\\"file_path\\": \\"x" }]\n'
        + DONE
    )
    async with SessionHarness(tmp_path, script, **BYPASS) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
    told = results(harness)
    assert all(block["is_error"] for block in told.values())
    assert "No such tool available: Fly. Available tools: Agent, Bash, " in told["t1"]["content"]
    assert "command" in told["t2"]["content"]
    assert "file_path" in told["t3"]["content"]
    assert "not JSON" in told["t4"]["content"]
    assert (result["result"], result["is_error"]) == ("Done.", False)


async def test_without_anybody_to_ask_a_call_is_denied_and_listed(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls(("Bash", {"command": "touch x"})) + DONE) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
    denial = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "touch x"}}
    assert result["permission_denials"] == [denial]
    assert results(harness)["t1"]["is_error"] is True
    assert not (tmp_path / "x").exists()
    assert any(line.get("subtype") == "permission_denied" for line in harness.lines)


async def test_every_call_has_one_recorded_decision_for_its_input(tmp_path: Path) -> None:
    script = calls(("Bash", {"command": "true"}), ("Bash", {"command": "false"})) + DONE
    async with SessionHarness(tmp_path, script, allowed_tools=("Bash",)) as harness:
        harness.prompt("go")
        await harness.receive("result")
        kept = [entry.message for entry in harness.session.config.storage.log.entries() if entry.kind == "permission"]
    assert [(one["tool_use_id"], one["decision"], one["source"]) for one in kept] == [
        ("t1", "allow", "rule"),
        ("t2", "allow", "rule"),
    ]
    assert kept[0]["input_sha256"] != kept[1]["input_sha256"]


async def test_max_turns_ends_the_turn_after_the_tool_results(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, calls(("Bash", {"command": "true"})) + DONE, max_turns=1, **BYPASS) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
    assert (result["subtype"], result["terminal_reason"]) == ("error_max_turns", "max_turns")
    assert "t1" in results(harness)


async def test_an_interrupt_while_a_tool_runs_answers_the_call_and_keeps_the_history_whole(tmp_path: Path) -> None:
    script = calls(("Bash", {"command": "echo started > started; sleep 60"})) + DONE
    async with SessionHarness(tmp_path, script, **BYPASS) as harness:
        harness.prompt("go")
        await harness.receive("assistant")
        async with asyncio.timeout(60):
            while not (tmp_path / "started").exists():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        await harness.request("interrupt")
        result = await harness.receive("result")
        harness.prompt("again")
        after = await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    assert result["terminal_reason"] == "aborted_tools"
    assert after["result"] == "Done."
    used = [block["id"] for m in sent for block in m["content"] if block["type"] == "tool_use"]
    answered = [block["tool_use_id"] for m in sent for block in m["content"] if block["type"] == "tool_result"]
    assert used == answered == ["t1"]


async def test_an_interrupt_in_the_same_breath_as_its_prompt_aborts_that_turn(tmp_path: Path) -> None:
    interrupt = {"type": "control_request", "request_id": "x", "request": {"subtype": "interrupt"}}
    prompts = [{"type": "user", "message": {"role": "user", "content": text}} for text in ("one", "two")]
    async with SessionHarness(tmp_path, DONE) as harness:
        both = b"\n".join(json.dumps(line).encode() for line in (prompts[0], interrupt))
        harness.send(both)
        answer = await harness.receive("control_response")
        aborted = await harness.receive("result")
        harness.send(prompts[1])
        result = await harness.receive("result")
    assert answer["response"]["response"] == {"still_queued": []}
    assert aborted["terminal_reason"] == "aborted_streaming"
    assert result["result"] == "Done."


async def test_queued_prompts_can_be_cancelled_together_with_the_turn(tmp_path: Path) -> None:
    slow = '[[turn]]\ntext = "long long long"\nchunk_chars = 2\nevent_delay_ms = 50\n'

    async with SessionHarness(tmp_path, slow + DONE, include_partial_messages=True) as harness:
        harness.prompt("one")
        await harness.receive("stream_event")
        harness.prompt("two", uuid="77777777-7777-4777-8777-777777777777")
        answer = await harness.request("interrupt", cancel_queued=True)
        await harness.receive("result")
    cancelled = ["77777777-7777-4777-8777-777777777777"]
    assert answer["response"]["response"] == {"still_queued": [], "cancelled": cancelled}
    assert [line["state"] for line in harness.messages("command_lifecycle")] == ["queued", "cancelled"]
    assert len(list(harness.messages("result"))) == 1


async def test_the_input_that_is_reported_is_the_one_that_runs_and_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old\n")

    edit = {"file_path": str(path), "old_string": "old", "new_string": "new"}
    async with SessionHarness(tmp_path, calls(("Edit", edit)) + DONE, **BYPASS) as harness:
        harness.prompt("go")
        await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    told = next(harness.messages("assistant"))["message"]["content"][0]["input"]
    assert told == {"replace_all": False, **edit}
    assert sent[1]["content"][0]["input"] == told
    assert path.read_text() == "new\n"


async def test_no_line_is_longer_than_the_cap_and_the_whole_output_is_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * 1_500 + "\n")

    command = {"command": "for i in $(seq 1 400); do cat big.txt; done"}
    script = calls(("Bash", command)) + DONE
    async with SessionHarness(tmp_path, script, max_line_bytes=60_000, **BYPASS) as harness:
        harness.prompt("go")
        await harness.receive("result")
    assert max(len(line) for line in harness.raw.split(b"\n")) <= 60_000
    [path] = harness.session.config.workspace.results_folder.iterdir()
    assert path.read_text() == (tmp_path / "big.txt").read_text() * 400


async def test_costs_continue_from_where_a_resumed_session_stood(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"scripted:": {"input": 1000000, "output": 0}}')
    script = '[[turn]]\ntext = "Hi."\nusage = {input_tokens = 2, output_tokens = 1}\n'

    first = SessionHarness(tmp_path, script)
    first.environment["PARLEY_PRICES"] = str(prices)
    async with first:
        first.prompt("go")
        one = await first.receive("result")
    second = SessionHarness(tmp_path, script, resume=one["session_id"])
    second.environment["PARLEY_PRICES"] = str(prices)
    async with second:
        second.prompt("go")
        two = await second.receive("result")
    assert (one["total_cost_usd"], two["total_cost_usd"]) == (2.0, 4.0)
    assert two["usage"]["input_tokens"] == 2


async def test_prompts_that_come_while_a_tool_runs_join_the_turn_at_its_next_model_call(tmp_path: Path) -> None:
    command = {"command": "echo > started; while [ ! -e go ]; do sleep 0.02; done; echo slept"}
    script = calls(("Bash", command)) + '[[turn]]\ntext = "Saw it all."\n'
    async with SessionHarness(tmp_path, script, replay_user_messages=True, **BYPASS) as harness:
        harness.prompt("go")
        async with asyncio.timeout(60):
            while not (tmp_path / "started").exists():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        harness.prompt("queued one", uuid="11111111-1111-4111-8111-111111111111")
        harness.prompt("queued two")
        await harness.receive("command_lifecycle")
        (tmp_path / "go").touch()
        await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    assert len(list(harness.messages("result"))) == 1
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "text"]
    assert sent[2]["content"][1]["text"] == "queued one\nqueued two"
    echoes = [line["message"]["content"] for line in harness.messages("user") if line.get("isReplay")]
    assert echoes == ["go", "queued one", "queued two"]
    assert [line["state"] for line in harness.messages("command_lifecycle")] == ["queued", "started", "completed"]


def pairs(messages: list[Json]) -> tuple[list[str], list[str]]:
    """The ids of the calls and of the results in a request."""
    blocks = [block for message in messages for block in message["content"]]
    used = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return used, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


async def test_a_call_that_ran_when_the_engine_was_killed_has_an_unknown_outcome_after_a_resume(tmp_path: Path) -> None:
    script = calls(("Bash", {"command": "echo hi"})) + DONE
    async with SessionHarness(tmp_path, script, **BYPASS) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
        path = Path(harness.session.config.storage.log._path)  # type: ignore[attr-defined]  # the file a kill would leave
    kept = path.read_text().splitlines()  # a small file
    cut = next(at for at, line in enumerate(kept) if '"tool_result"' in line)
    path.write_text("\n".join(kept[:cut]) + "\n")  # a small file
    async with SessionHarness(tmp_path, DONE, resume=result["session_id"], **BYPASS) as again:
        again.prompt("and now?")
        after = await again.receive("result")
        sent = again.session.conversation.build_request().messages
    assert after["result"] == "Done."
    assert pairs(sent) == (["t1"], ["t1"])
    assert "outcome is unknown" in sent[2]["content"][0]["content"]


async def test_a_note_that_starts_no_turn_never_comes_between_a_call_and_its_result(tmp_path: Path) -> None:
    command = {"command": "echo > started; while [ ! -e go ]; do sleep 0.02; done"}
    async with SessionHarness(tmp_path, calls(("Bash", command)) + DONE, **BYPASS) as harness:
        harness.prompt("go")
        async with asyncio.timeout(60):
            while not (tmp_path / "started").exists():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        harness.send({"type": "user", "shouldQuery": False, "message": {"role": "user", "content": "by the way"}})
        await harness.request("interrupt_not_known")
        (tmp_path / "go").touch()
        await harness.receive("result")
        sent = harness.session.conversation.build_request().messages
    assert sent[2]["content"][0]["type"] == "tool_result"
    assert sent[4]["content"][0]["text"] == "by the way"
    assert len(list(harness.messages("result"))) == 1


async def test_an_interrupt_aimed_at_a_prompt_that_cannot_be_read_does_not_hit_the_next_one(tmp_path: Path) -> None:
    interrupt = b'{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}'
    good = b'{"type":"user","message":{"role":"user","content":"good"}}'
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.send(b"\n".join([b'{"type":"user","message":5}', interrupt, good]))
        results = [await harness.receive("result"), await harness.receive("result")]
    assert [result["is_error"] for result in results] == [True, False]


async def test_a_budget_is_looked_at_before_every_model_call_and_every_call_has_its_result(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"scripted:": {"input": 1000000, "output": 0}}')
    script = calls(("Bash", {"command": "true"})).replace("[[turn]]\n", "[[turn]]\nusage = {input_tokens = 2}\n") + DONE

    harness = SessionHarness(tmp_path, script, max_budget_usd=1.5, **BYPASS)
    harness.environment["PARLEY_PRICES"] = str(prices)
    async with harness:
        harness.prompt("go")
        result = await harness.receive("result")
    assert (result["subtype"], result["terminal_reason"]) == ("error_max_budget_usd", "budget_exhausted")
    assert (result["is_error"], result["total_cost_usd"]) == (True, 2.0)
    assert "t1" in results(harness)


async def test_an_odd_line_in_the_log_is_skipped_and_reported_when_a_session_is_resumed(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, DONE) as harness:
        harness.prompt("go")
        result = await harness.receive("result")
        odd = Entry(seq=9, kind="result", at="", message={"modelUsage": {"m": 5}})
        harness.session.config.storage.log.append(odd)
    async with SessionHarness(tmp_path, DONE, resume=result["session_id"]) as again:
        again.prompt("and now?")
        after = await again.receive("result")
    assert after["result"] == "Done."
    assert any("entry 9" in warning for warning in again.warnings)
