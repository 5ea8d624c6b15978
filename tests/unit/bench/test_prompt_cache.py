"""The simulated prompt cache follows the rules that the API documents."""

from __future__ import annotations

from typing import Any

import pytest
from prompt_cache import INPUT_USD, LOOKBACK, Bill, InvalidRequest, PromptCache

Json = dict[str, Any]
MARK: Json = {"cache_control": {"type": "ephemeral"}}
HOUR: Json = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
LONG = "word " * 2_000


def block(text: str, **more: Any) -> Json:
    return {"type": "text", "text": text, **more}


def body(*blocks: Json, system: Json | None = None, tools: tuple[Json, ...] = (), **more: Any) -> Json:
    """A request with one message."""
    messages = [{"role": "user", "content": list(blocks)}]
    return {"model": "m", "tools": list(tools), "system": [system] if system else [], "messages": messages, **more}


def test_the_first_request_writes_up_to_its_last_marker_and_the_next_one_reads_that() -> None:
    cache = PromptCache()

    first = cache.charge(body(block(LONG, **MARK), block("a")), 0)
    second = cache.charge(body(block(LONG), block("a", **MARK)), 1)

    assert (first.read, first.fresh) == (0, first.input - first.written)
    assert (second.read, second.fresh) == (first.written, 0)


def test_what_is_not_marked_is_not_written() -> None:
    cache = PromptCache()
    cache.charge(body(block(LONG), block("a")), 0)

    assert cache.charge(body(block(LONG, **MARK)), 1).read == 0


@pytest.mark.parametrize(("model", "tokens", "is_written"), [("m", 900, False), ("m", 1_100, True)])
@pytest.mark.parametrize("scale", [1, 4])
def test_a_short_prefix_is_not_written(model: str, tokens: int, is_written: bool, scale: int) -> None:
    name = {1: "claude-sonnet-4-5", 4: "claude-opus-4-5"}[scale]
    asked = {**body(block("x" * 4 * tokens * scale, **MARK)), "model": name}

    assert (PromptCache().charge(asked, 0).written > 0) is is_written


@pytest.mark.parametrize("between", [LOOKBACK - 1, LOOKBACK])
def test_a_marker_looks_back_over_20_blocks_its_own_included(between: int) -> None:
    cache = PromptCache()
    cache.charge(body(block(LONG, **MARK)), 0)
    more = [block(str(number)) for number in range(between)]
    more[-1] |= MARK

    assert bool(cache.charge(body(block(LONG), *more), 1).read) is (between < LOOKBACK)


def test_a_second_marker_where_the_request_before_ended_finds_it_over_any_distance() -> None:
    cache = PromptCache()
    cache.charge(body(block(LONG, **MARK)), 0)
    more = [block(str(number)) for number in range(100)]

    assert cache.charge(body(block(LONG, **MARK), *more, block("end", **MARK)), 1).read > 2_000


@pytest.mark.parametrize(("marker", "seconds"), [(MARK, 300), (HOUR, 3_600)])
def test_a_prefix_lives_for_its_time_and_as_long_again_after_a_use(marker: Json, seconds: int) -> None:
    cache = PromptCache()
    asked = body(block(LONG, **marker))
    cache.charge(asked, 0)

    assert cache.charge(asked, seconds - 1).read
    assert cache.charge(asked, 2 * seconds - 2).read
    assert not cache.charge(asked, 4 * seconds).read


@pytest.mark.parametrize(
    "changed",
    [{"model": "other"}, {"tools": [{"name": "a"}]}, {"system": [block("x")]}, {"thinking": {"type": "enabled"}}],
)
def test_a_change_of_anything_before_it_misses(changed: Json) -> None:
    cache = PromptCache()
    asked = body(block(LONG, **MARK))
    cache.charge(asked, 0)

    assert cache.charge({**asked, **changed}, 1).read == 0


def test_tools_and_system_prompt_are_read_whatever_the_messages_are() -> None:
    cache = PromptCache()
    cache.charge(body(block("a"), system=block(LONG, **MARK)), 0)

    assert cache.charge(body(block("b"), system=block(LONG, **MARK), thinking={"type": "enabled"}), 1).read


def test_deferred_tools_are_not_part_of_the_prefix() -> None:
    cache = PromptCache()
    cache.charge(body(block(LONG, **MARK)), 0)

    assert cache.charge(body(block(LONG, **MARK), tools=({"name": "a", "defer_loading": True},)), 1).read


@pytest.mark.parametrize(
    "wrong",
    [
        body(*(block(str(number), **MARK) for number in range(5))),
        body(block("a", **MARK), block("b", **HOUR)),
        body(block("", **MARK)),
        body({"type": "thinking", "thinking": "a", **MARK}),
        body(block("a"), tools=({"name": "a", "defer_loading": True, **MARK},)),
    ],
    ids=["five markers", "an hour after five minutes", "an empty text", "thinking", "a deferred tool"],
)
def test_what_the_api_refuses_is_refused(wrong: Json) -> None:
    with pytest.raises(InvalidRequest):
        PromptCache().charge(wrong, 0)


def test_markers_of_both_times_are_charged_for_their_part() -> None:
    bill = PromptCache().charge(body(block(LONG, **HOUR), block(LONG, **MARK)), 0)

    assert bill.written_1h > 2_000 < bill.written
    assert bill.fresh == 0


def test_reading_costs_a_tenth_and_writing_a_quarter_more_or_twice_as_much() -> None:
    prices = [Bill(**{name: 1_000_000}).usd / INPUT_USD / 1e6 for name in ("read", "written", "written_1h", "fresh")]

    assert prices == pytest.approx([0.1, 1.25, 2.0, 1.0])


def test_an_image_has_the_same_tokens_whatever_its_bytes() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}

    assert PromptCache().charge(body({"type": "image", "source": source}), 0).input < 2_000
