"""What was used adds up: call by call on the wire, in every result, and by model, whatever went wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.session import Json, SessionHarness

COUNTED = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
BY_MODEL = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
PRICES = '{"scripted:": {"input": 3, "output": 15}}'

usages = st.fixed_dictionaries(dict.fromkeys(COUNTED, st.integers(0, 10_000)))
faults = st.sampled_from([None, None, "reset=1", "reset=2", "reset=4", "reset=6", "half-tool-call", "overloaded"])
turns = st.tuples(usages, faults, st.sampled_from(["text", "tool"]))


def script(given: list[tuple[Json, str | None, str]]) -> str:
    found = []
    for number, (usage, fault, kind) in enumerate(given):
        said = "text = 'A word.'"
        if kind == "tool":
            said = f"tools = [{{ name = 'Read', id = 't{number}', input = {{ file_path = 'no' }} }}]"
        used = ", ".join(f"{name} = {value}" for name, value in usage.items())
        struck = f"fault = '{fault}'\n" if fault else ""
        found.append(f"[[turn]]\n{struck}usage = {{ {used} }}\n{said}\n")
    return "".join(found)


def per_call(lines: list[Json]) -> list[Json]:
    """What each model call used, as a reader of the stream sees it: of one that was cut off, what had arrived."""
    calls: list[Json] = []
    written: list[int] = []
    for line in lines:
        event = line.get("event", {})
        delta = event.get("delta", {})
        if event.get("type") == "message_start":
            calls.append(dict(event["message"]["usage"]))
            written.append(0)
        elif event.get("type") == "content_block_delta":
            written[-1] += len(delta.get("text") or delta.get("partial_json") or "")
        elif event.get("type") == "message_delta":
            calls[-1] |= event["usage"]
            written[-1] = 0
    for call, chars in zip(calls, written, strict=True):
        call["output_tokens"] = max(call["output_tokens"], -(-chars // 4))
    return calls


def sums(usages: list[Json], names: tuple[str, ...] = COUNTED) -> list[int]:
    return [sum(usage[name] for usage in usages) for name in names]


def in_turns(lines: list[Json]) -> list[list[Json]]:
    """The lines up to each result."""
    found: list[list[Json]] = [[]]
    for line in lines:
        found[-1].append(line)
        if line["type"] == "result":
            found.append([])
    return found[:-1]


def check(lines: list[Json]) -> None:
    """The invariant: per-call sums = the result = per-model sums, per turn and over all turns."""
    so_far: list[Json] = []
    for turn in in_turns(lines):
        result, calls = turn[-1], per_call(turn)
        so_far += calls
        assert sums([result["usage"]]) == sums(calls)
        assert sums(list(result["model_usage_since_last_result"].values()), BY_MODEL) == sums(calls)
        assert sums(list(result["modelUsage"].values()), BY_MODEL) == sums(so_far)
        cost = sum(model["costUSD"] for model in result["modelUsage"].values())
        assert result["total_cost_usd"] == pytest.approx(cost)


def room_of(folder: Path, text: str) -> SessionHarness:
    harness = SessionHarness(folder, text, include_partial_messages=True, no_session_persistence=True)
    (folder / "prices.json").write_text(PRICES)
    harness.environment["PARLEY_PRICES"] = str(folder / "prices.json")
    harness.stamp = msgspec.structs.replace(harness.stamp, sleep=lambda seconds: asyncio.sleep(0))
    return harness


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(turns, min_size=1, max_size=8))
def test_every_sum_is_the_same_whatever_breaks(tmp_path: Path, given: list[tuple[Json, str | None, str]]) -> None:
    async def scenario() -> list[Json]:
        async with room_of(tmp_path, script(given)) as harness:
            for _ in range(3):
                harness.prompt("go")
                await harness.receive("result")
        return harness.lines

    check(asyncio.run(scenario()))


async def test_an_interrupted_call_counts_with_what_it_had_said(tmp_path: Path) -> None:
    long = "[[turn]]\nevent_delay_ms = 5\nusage = { input_tokens = 7 }\ntext = '" + "word " * 400 + "'\n"

    async with room_of(tmp_path, long + script([({"input_tokens": 3}, None, "text")])) as harness:
        harness.prompt("go")
        await harness.receive_until(lambda line: line.get("event", {}).get("type") == "content_block_delta")
        await harness.request("interrupt")
        aborted = await harness.receive("result")
        harness.prompt("again")
        await harness.receive("result")
    assert aborted["terminal_reason"] == "aborted_streaming"
    lines = harness.lines
    check(lines)
    assert [line["usage"]["input_tokens"] for line in lines if line["type"] == "result"] == [7, 3]
    assert aborted["usage"]["output_tokens"] > 1  # more than the stream had reported


async def test_calls_that_are_cut_off_count_for_the_budget(tmp_path: Path) -> None:
    turn = "[[turn]]\nfault = 'reset=30'\nusage = { input_tokens = 0, output_tokens = 0 }\n"
    harness = room_of(tmp_path, turn + "text = '" + "word " * 400 + "'\n[[turn]]\ntext = 'Never.'\n")
    harness.options = harness.options.replace(max_budget_usd=0.0001)

    async with harness:
        harness.prompt("go")
        spent = await harness.receive("result")

    assert spent["subtype"] == "error_max_budget_usd"
    assert spent["total_cost_usd"] > 0.0001
