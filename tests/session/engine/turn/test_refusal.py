"""A model that refuses: another one answers if there is one, and the client is told what to remove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.models.event_synthesis import event_objects, message_json
from tests.helpers.http_server import loopback, stream
from tests.helpers.mcp import script
from tests.helpers.session import Json, SessionHarness

REFUSED = '[[turn]]\nthinking = "Hm."\ntext = "I will not."\nstop_reason = "refusal"\n'
SPARE = "[[turn]]\ntext = 'From the spare.'\n"


def harness(folder: Path, turns: str, spare: str = SPARE, **options: Any) -> SessionHarness:
    (folder / "spare.toml").write_text(spare)
    return SessionHarness(folder, turns, fallback_model=f"scripted:{folder / 'spare.toml'}", **options)


def reports(live: SessionHarness, kind: str = "model_refusal_fallback") -> list[Json]:
    return [line for line in live.messages("system") if line["subtype"] == kind]


async def test_the_answer_of_another_model_replaces_the_refused_one(tmp_path: Path) -> None:
    async with harness(tmp_path, REFUSED + script("Own.")) as live:
        live.prompt("Do it", uuid="11111111-1111-4111-8111-111111111111")
        result = await live.receive("result")
        sent = live.session.journal.history.render()
        live.prompt("And now")
        again = await live.receive("result")
    own, spare = f"scripted:{tmp_path}/script.toml", f"scripted:{tmp_path}/spare.toml"
    assert (result["result"], again["result"]) == ("From the spare.", "Own.")
    thought, refused, answer, _ = live.messages("assistant")
    retracted = [thought["uuid"], refused["uuid"]]
    assert answer["supersedes"] == retracted
    retry, revert = reports(live)
    assert {key: retry[key] for key in retry if key not in ("uuid", "session_id")} == {
        "type": "system",
        "subtype": "model_refusal_fallback",
        "trigger": "refusal",
        "direction": "retry",
        "scope": "session",
        "original_model": own,
        "fallback_model": spare,
        "request_id": None,
        "api_refusal_category": None,
        "api_refusal_explanation": None,
        "retracted_message_uuids": retracted,
        "refused_user_message_uuid": "11111111-1111-4111-8111-111111111111",
        "content": f"{own} refused to answer; {spare} answers instead",
    }
    assert (revert["direction"], revert["original_model"]) == ("revert", own)
    assert "I will not." not in json.dumps(sent)


async def test_what_was_retracted_stays_away_from_a_resumed_session(tmp_path: Path) -> None:
    async with harness(tmp_path, REFUSED) as live:
        live.prompt("Do it")
        await live.receive("result")
        session_id = live.session.id
    async with SessionHarness(tmp_path, script("Later."), resume=session_id) as live:
        live.prompt("And now")
        await live.receive("result")
        sent = json.dumps(live.session.journal.history.render())
    assert "I will not." not in sent
    assert "From the spare." in sent


async def test_calls_of_a_refused_answer_do_not_run(tmp_path: Path) -> None:
    calls = script([("Bash", {"command": "touch made"})]) + "stop_reason = 'refusal'\n"
    async with harness(tmp_path, calls, skip_permissions=True) as live:
        live.prompt("Do it")
        result = await live.receive("result")
    assert result["result"] == "From the spare."
    assert not (tmp_path / "made").exists()


async def test_when_every_model_refuses_the_last_refusal_is_the_answer(tmp_path: Path) -> None:
    async with harness(tmp_path, REFUSED, spare=REFUSED) as live:
        live.prompt("Do it")
        result = await live.receive("result")
    assert (result["result"], result["stop_reason"]) == ("I will not.", "refusal")
    assert [line["direction"] for line in reports(live)] == ["retry", "revert"]
    [last] = reports(live, "model_refusal_no_fallback")
    assert last["original_model"] == f"scripted:{tmp_path}/spare.toml"


@pytest.mark.parametrize(
    ("details", "category", "explanation"),
    [({"type": "refusal", "category": "cyber", "explanation": "Not this."}, "cyber", "Not this."), (7, None, None)],
)
async def test_a_refusal_without_another_model_is_reported(
    tmp_path: Path, details: Any, category: str | None, explanation: str | None
) -> None:
    message = message_json(
        [{"type": "text", "text": "No."}],
        id="msg_1",
        model="m",
        usage={"input_tokens": 1, "output_tokens": 1},
        stop_reason="refusal",
    )
    events = list(event_objects(message, 40))
    for event in events:
        if event["type"] == "message_delta":
            event["delta"]["stop_details"] = details
    pieces = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    async with loopback(stream(*pieces, headers={"request-id": "req_1"})) as server:
        live = SessionHarness(tmp_path, "", model="claude-opus-5-5")
        live.environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        async with live:
            live.prompt("Do it", uuid="11111111-1111-4111-8111-111111111111")
            result = await live.receive("result")
    assert (result["result"], result["stop_reason"], result["is_error"]) == ("No.", "refusal", False)
    [report] = reports(live, "model_refusal_no_fallback")
    assert {key: report[key] for key in report if key not in ("uuid", "session_id")} == {
        "type": "system",
        "subtype": "model_refusal_no_fallback",
        "original_model": "claude-opus-5-5",
        "request_id": "req_1",
        "api_refusal_category": category,
        "api_refusal_explanation": explanation,
        "refused_user_message_uuid": "11111111-1111-4111-8111-111111111111",
        "content": f"claude-opus-5-5 refused to answer{' (cyber)' if category else ''}",
    }
