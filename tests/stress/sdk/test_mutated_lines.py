"""The short form of tests/stress/sdk/mutated_lines.py, and lines that are too long."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from parley import Client, ControlError, Options, ResultMessage, Unreadable
from tests.helpers.sdk import ClientHarness, run
from tests.process.sdk.test_lifecycle import fake_engine
from tests.stress.sdk import mutated_lines


async def test_whatever_an_engine_writes_only_typed_errors_are_raised(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "parley.sdk")

    found = await mutated_lines.run(5_000, seed=7)

    assert {"Unreadable", "Unknown", "ResultMessage"} <= set(found)


TALKER = """
import json
def say(line): sys.stdout.write(json.dumps(line) + "\\n"); sys.stdout.flush()
for line in sys.stdin:
    line = json.loads(line)
    if line["type"] == "control_request":
        pad = "x" * 200_000 if line["request"]["subtype"] == "get_settings" else ""
        answer = {"subtype": "success", "request_id": line["request_id"], "response": {"pad": pad}}
        say({"type": "control_response", "response": answer})
    elif line["type"] == "user":
        say({"type": "assistant", "message": {"role": "assistant", "model": "m", "content": [], "id": "y" * 200_000}})
        big = "z" * 200_000 if line["message"]["content"] == "big" else "small"
        say({"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "result": big})
"""


def test_a_line_that_is_too_long_fails_alone(harness: ClientHarness) -> None:
    async def play(options: Options) -> list[Any]:
        async with Client(options) as client:
            with pytest.raises(ControlError, match="longer than 100000 bytes"):
                await client.get_settings()
            await client.query("big")
            big = [message async for message in client.receive_response()]
            await client.query("small")
            return [big, [message async for message in client.receive_response()]]

    talker = fake_engine(harness, TALKER)
    big, small = run("asyncio", play, harness.options("process", cli_path=talker, max_buffer_size=100_000))

    assert [(type(one), one.type) for one in big] == [(Unreadable, "assistant"), (Unreadable, "result")]
    assert [type(one) for one in small] == [Unreadable, ResultMessage]


def test_lines_may_have_fifty_megabytes(harness: ClientHarness) -> None:
    async def play(options: Options) -> int:
        async with Client(options) as client:
            await client.query("big")
            return max([len(message.raw.get("result", "")) async for message in client.receive_response()])

    talker = fake_engine(harness, TALKER.replace('"z" * 200_000', '"z" * 50_000_000'))

    assert run("asyncio", play, harness.options("process", cli_path=talker)) == 50_000_000
