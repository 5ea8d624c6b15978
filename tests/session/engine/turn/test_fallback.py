"""Another model continues with a turn whose own model cannot answer, and only with that turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.turn.model_call import is_unavailable
from parley.errors import ModelError
from tests.helpers.session import Json, SessionHarness, texts

BUSY = '[[turn]]\nerror = { status = 529, type = "overloaded_error", message = "busy", retry_after_seconds = 0 }\n'
SPARE = "[[turn]]\ntext = 'From the spare.'\n"


def harness(folder: Path, script: str, spare: str = SPARE, **options: object) -> SessionHarness:
    (folder / "spare.toml").write_text(spare)
    return SessionHarness(folder, script, fallback_model=f"scripted:{folder / 'spare.toml'}", **options)


def notices(harness: SessionHarness) -> list[str]:
    return [line["content"] for line in harness.messages("system") if line["subtype"] == "informational"]


async def test_an_overloaded_model_is_replaced_for_the_turn_and_comes_back_for_the_next(tmp_path: Path) -> None:
    async def scenario() -> tuple[SessionHarness, list[Json]]:
        async with harness(tmp_path, BUSY * 3 + "[[turn]]\ntext = 'Own.'\n") as live:
            results = []
            for text in ("first", "second"):
                live.prompt(text)
                results.append(await live.receive("result"))
            return live, results

    live, results = await scenario()
    own, spare = f"scripted:{tmp_path}/script.toml", f"scripted:{tmp_path}/spare.toml"
    assert [result["result"] for result in results] == ["From the spare.", "Own."]
    assert notices(live) == [f"{own} does not answer (busy); this turn continues with {spare}"]
    assert [line["attempt"] for line in live.messages("system") if line["subtype"] == "api_retry"] == [1, 2]
    assert [line["model"] for line in live.messages("system") if line["subtype"] == "init"] == [own, own]
    assert list(results[0]["modelUsage"]) == [spare]


async def test_a_model_that_is_not_there_is_replaced_at_once(tmp_path: Path) -> None:
    gone = '[[turn]]\nerror = { status = 404, type = "not_found_error", message = "no such model" }\n'
    async with harness(tmp_path, gone) as live:
        live.prompt("go")
        result = await live.receive("result")
        outcome = result["result"], [line["subtype"] for line in live.messages("system")]

    assert outcome == ("From the spare.", ["init", "informational"])


async def test_when_no_model_answers_the_turn_fails_with_the_last_failure(tmp_path: Path) -> None:
    async with harness(tmp_path, BUSY * 9, spare=BUSY * 9) as live:
        live.prompt("go")
        result, told = await live.receive("result"), notices(live)

    assert (result["is_error"], result["api_error_status"], len(told)) == (True, 529, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 429])
async def test_a_failure_that_another_model_would_have_too_is_not_a_reason(tmp_path: Path, status: int) -> None:
    error = f'[[turn]]\nerror = {{ status = {status}, message = "no", retry_after_seconds = 0 }}\n'
    async with harness(tmp_path, error * 9) as live:
        live.prompt("go")
        result = (await live.receive("result"))["is_error"], notices(live)

    assert result == (True, [])


async def test_a_model_chosen_during_the_turn_is_kept(tmp_path: Path) -> None:
    call = "[[turn]]\ntools = [{ name = 'Bash', input = { command = 'touch x' } }]\n"
    async with harness(tmp_path, BUSY * 3, spare=call + SPARE, permission_prompt_tool="stdio") as live:
        live.prompt("go")
        question = await live.receive("control_request")
        await live.request("set_model", model="offline")
        answer = {"behavior": "allow", "updatedInput": question["request"]["input"]}
        response = {"subtype": "success", "request_id": question["request_id"], "response": answer}
        live.send({"type": "control_response", "response": response})
        await live.receive("result")
        live.prompt("say Hello.")
        result = (await live.receive("result"))["result"], texts(live.messages("assistant"))

    assert result[0] == "Hello."


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ModelError("x", status=529), True),
        (ModelError("x", status=500), True),
        (ModelError("x", status=404), True),
        (ModelError("x", kind="overloaded_error"), True),
        (ModelError("x", kind="connection_failed"), True),
        (ModelError("x", kind="timeout_error"), True),
        (ModelError("x", kind="no_key"), False),
        (ModelError("x", status=400), False),
        (ModelError("x", status=429, kind="rate_limit_error"), False),
    ],
)
def test_what_makes_a_model_unavailable(problem: ModelError, expected: bool) -> None:
    assert is_unavailable(problem) is expected
