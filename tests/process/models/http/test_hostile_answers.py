"""Servers that send too much, nest too deeply or repeat the secrets of a request."""

from __future__ import annotations

import gzip
import json

import pytest

from parley.errors import ModelError
from parley.models.accumulator import MessageAccumulator
from parley.models.backends.anthropic import Anthropic
from parley.models.backends.openai import OpenAI
from parley.models.base import Model
from parley.models.endpoint import ModelEndpoint
from tests.helpers.http_server import Answer, endless, loopback, stream, until_close, whole
from tests.helpers.models import asking, counting, user

KINDS = ("anthropic", "openai")
SECRETS = {"x-gateway": "first-secret-value", "cookie": "sid=second-secret-value; a=b", "x-token": "s3cr"}


async def ask(kind: str, answer: Answer, headers: dict[str, str] | None = None) -> ModelError:
    """The error that an answer ends with."""
    async with loopback(answer) as server:
        endpoint = ModelEndpoint(
            base_url=server.url, auth=("authorization", "Bearer third-secret"), headers=headers or {}
        )
        model: Model = Anthropic(endpoint) if kind == "anthropic" else OpenAI(endpoint, "m", counting())
        accumulator = MessageAccumulator()
        try:
            async for event in model.stream(asking(user("hello"))):
                accumulator.feed(event)
        except ModelError as exc:
            return exc
        finally:
            await model.close()
    raise AssertionError("the model answered")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", [b"x" * 65536, b"data: \n" * 9000], ids=["line", "lines"])
async def test_an_event_without_end_is_an_error_that_is_not_retried(kind: str, piece: bytes) -> None:
    error = await ask(kind, endless(piece))

    assert (error.message, error.retryable) == ("an event of the model's answer is larger than 16 MB", False)


async def test_a_compressed_event_is_measured_after_decompression() -> None:
    body = gzip.compress(b"data: " + b"x" * (20 << 20))

    error = await ask("anthropic", whole(200, body, {"content-encoding": "gzip"}))

    assert error.message == "an event of the model's answer is larger than 16 MB"


async def test_text_without_end_is_an_error_that_is_not_retried() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "x" * 100_000}}]}

    error = await ask("openai", endless(b"data: " + json.dumps(chunk).encode() + b"\n\n"))

    assert (error.message, error.retryable) == ("the model's answer is larger than 32 MB", False)


@pytest.mark.parametrize(("kind", "depth"), [("anthropic", 100_000), ("anthropic", 970), ("openai", 100_000)])
async def test_an_event_that_is_nested_too_deeply_is_an_invalid_answer(kind: str, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    event = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"x","y":' + nested + b"}}\n\n"

    assert (await ask(kind, until_close(event))).retryable


@pytest.mark.parametrize("kind", KINDS)
async def test_secrets_of_a_request_are_redacted_in_errors(kind: str) -> None:
    told = "third-secret first-secret-value second-secret-value s3cr"
    body = json.dumps({"error": {"type": "invalid", "message": told}}).encode()

    refused = await ask(kind, whole(400, body, {"request-id": "first-secret-value"}), SECRETS)
    cut = await ask(kind, whole(400, b"x" * 190 + b" first-secret-value"), SECRETS)
    streamed = await ask(kind, stream(b'data: {"type":"error",' + body[1:] + b"\n\n"), SECRETS)

    assert refused.message.split() == streamed.message.split() == ["[redacted]"] * 4
    assert "first" not in f"{cut.message} {refused.request_id}"
