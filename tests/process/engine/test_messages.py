"""Messages that only some sessions send, through the executable.

See also: `control/test_requests.py` for `control_request_progress`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mcp import script
from tests.helpers.process import ProcessHarness
from tests.helpers.session import Json

PROMPT_ID = "11111111-1111-4111-8111-111111111111"
SESSION_ID = "33333333-3333-4333-8333-333333333333"


def own_fields(line: Json) -> dict[str, Any]:
    return {key: line[key] for key in line if key not in ("type", "subtype", "uuid", "session_id")}


async def test_thinking_is_counted_while_it_streams(tmp_path: Path) -> None:
    turns = "[[turn]]\nthinking = 'let me think about it'\ntext = 'Done.'\nchunk_chars = 12\n"
    async with ProcessHarness(tmp_path, turns, "--include-partial-messages") as harness:
        harness.prompt("Hi", uuid=PROMPT_ID)
        await harness.receive("result")
    assert [own_fields(line) for line in harness.of("thinking_tokens")] == [
        {"estimated_tokens": total, "estimated_tokens_delta": 3, "user_message_uuid": PROMPT_ID} for total in (3, 6)
    ]


async def test_writes_that_a_full_disk_loses_are_reported_once(tmp_path: Path) -> None:
    disk = tmp_path / "home" / ".claude"
    disk.mkdir(parents=True)
    own_mounts = ("unshare", "--mount", "--map-root-user")
    try:
        subprocess.run([*own_mounts, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a small tmpfs, and this machine does not let a process mount one (unshare --mount)")
    harness = ProcessHarness(tmp_path, script("One."), "--session-id", SESSION_ID)
    mount = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
    harness.launcher = (*own_mounts, "sh", "-c", mount, "sh", str(disk))
    harness.exit_code = 1  # the last turn failed
    async with harness:
        for _ in range(2):
            result = await harness.turn("x" * 100_000)
    assert "cannot write the session" in result["errors"][0]
    assert [own_fields(line) for line in harness.of("session_writes_lost")] == [
        {"error_code": "ENOSPC", "lost": ["transcript"], "transcript_session_ids": [SESSION_ID]}
    ]


async def test_another_model_answers_for_one_that_refuses_and_both_ends_are_reported(tmp_path: Path) -> None:
    refused = "[[turn]]\ntext = 'I will not.'\nstop_reason = 'refusal'\n"
    (tmp_path / "spare.toml").write_text(script("From the spare."))
    own, spare = f"scripted:{tmp_path}/script.toml", f"scripted:{tmp_path}/spare.toml"
    async with ProcessHarness(tmp_path, refused + script("Own."), "--fallback-model", spare) as harness:
        answers = [(await harness.turn())["result"] for _ in range(2)]
    refusal, answer, _ = harness.messages("assistant")
    retry, revert = harness.of("model_refusal_fallback")
    assert answers == ["From the spare.", "Own."]
    assert (retry["direction"], retry["original_model"], retry["fallback_model"]) == ("retry", own, spare)
    assert retry["retracted_message_uuids"] == answer["supersedes"] == [refusal["uuid"]]
    assert (revert["direction"], revert["original_model"]) == ("revert", own)


async def test_a_refusal_without_another_model_is_reported(tmp_path: Path) -> None:
    refused = "[[turn]]\ntext = 'I will not.'\nstop_reason = 'refusal'\n"
    async with ProcessHarness(tmp_path, refused) as harness:
        await harness.turn()
    [report] = harness.of("model_refusal_no_fallback")
    assert report["original_model"] == f"scripted:{tmp_path}/script.toml"


async def test_the_client_is_told_which_memories_the_model_reads(tmp_path: Path) -> None:
    create = {"slug": "ada", "title": "Ada", "body": "Keeps bees in Turin.", "sources": [0]}
    (tmp_path / "curator.toml").write_text(script([("memory_create", create)], "Noted."))
    turns = script("One.", [("memory_read", {"slug": "ada"})], "Two.")
    settings = {"memory": {"model": f"scripted:{tmp_path / 'curator.toml'}"}}
    async with ProcessHarness(tmp_path, turns, "--db", str(tmp_path / "agent.db"), settings=settings) as harness:
        harness.prompt("My sister Ada keeps bees on a roof in Turin. " * 50)
        await harness.receive("system", "consolidation")
        await harness.turn("Who is Ada?")
    [recall] = harness.of("memory_recall")
    memory = {"path": "<memory:ada>", "scope": "personal", "content": "Keeps bees in Turin."}
    assert own_fields(recall) == {"mode": "select", "memories": [memory]}
